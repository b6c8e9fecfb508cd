package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/rs/zerolog"

	"github.com/kvstored/kvstored/config"
)

// reloads applies the configuration file anew to a running daemon, at each
// SIGHUP. All that can fail comes first; then everything changes, or nothing.
type reloads struct {
	daemon *daemon
	path   string           // of the file; "" = the daemon was given none
	hup    <-chan os.Signal // nil: there are no reloads
	mu     struct {
		sync.Mutex
		running config.Config
		waiting []config.Change // in the file since; they take a restart
		loaded  time.Time       // the running values
		good    uint64
		failed  uint64
		ok      bool // the last one was good, or there was none
	}
}

// configStats is what `kvstored stats` shows of the configuration.
type configStats struct {
	File         string    `json:"file"`
	Loaded       time.Time `json:"loaded"`
	Reloads      uint64    `json:"reloads"`
	ReloadsBad   uint64    `json:"reloads_failed"`
	LastReloadOK bool      `json:"last_reload_ok"`
	NeedsRestart []waiting `json:"needs_restart"`
	// Running is the whole configuration as a file, without what waits for a
	// restart. Only administrators get it.
	Running string `json:"running,omitempty"`
}

// waiting is a key whose value in the file takes a restart.
type waiting struct {
	Key     string `json:"key"`
	Running string `json:"running"`
	File    string `json:"file"`
}

// hangups has SIGHUP ask for a reload, for the rest of the process's life: it
// ends no daemon, also not one that starts or stops. Of several at once one is
// enough: each reload reads the file as it is then.
func hangups() <-chan os.Signal {
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	return hup
}

func newReloads(d *daemon) *reloads {
	r := &reloads{daemon: d}
	r.mu.running, r.mu.loaded, r.mu.ok = d.cfg, d.started, true
	return r
}

// run reloads until ctx ends.
func (r *reloads) run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-r.hup:
			r.reload(ctx)
		}
	}
}

// prepared is a reload that cannot fail any more.
type prepared struct {
	*config.Reloaded
	password string
}

func (r *reloads) reload(ctx context.Context) {
	running := r.running()
	type result struct {
		prepared
		err error
	}
	read := make(chan result, 1)
	go func() { // a file system that hangs must not keep the daemon from stopping
		p, err := prepare(&running, r.path)
		read <- result{p, err}
	}()
	select {
	case <-ctx.Done():
	case got := <-read:
		if got.err == nil {
			s := settingsOf(&got.Next, r.daemon.arena.Stats().CapacityBytes, got.password)
			r.daemon.apply(&s)
		}
		r.tell(got.prepared, got.err)
	}
}

// prepare reads the file and what it names.
func prepare(running *config.Config, path string) (p prepared, err error) {
	rules, err := rulesHere()
	if err != nil {
		return p, err
	}
	if p.Reloaded, err = config.Reload(running, path, os.Environ(), rules); err != nil {
		return p, err
	}
	p.password, err = readPassword(p.Next.Listen.RESPPasswordFile)
	if err != nil {
		const key = "listen.resp_password_file"
		err = p.Errorf(key, "%s", strings.TrimPrefix(err.Error(), key+": "))
	}
	return p, err
}

// running is what the daemon runs with. A policy that `kvstored policy set` has
// chosen is the tier's until the next reload.
func (r *reloads) running() config.Config {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.daemon.present(r.mu.running)
}

// tell counts a reload and says what came of it.
func (r *reloads) tell(p prepared, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	log := &r.daemon.log
	if r.mu.ok = err == nil; err != nil {
		r.mu.failed++
		for _, problem := range problemsOf(err) {
			log.Error().Msgf("configuration not reloaded: %v", problem)
		}
		return
	}
	r.mu.good++
	r.mu.running, r.mu.loaded, r.mu.waiting = p.Next, time.Now(), nil
	changed := zerolog.Arr()
	for _, c := range p.Changes {
		if c.Live {
			changed.Str(c.Path + ": " + c.Old + " -> " + c.New)
			continue
		}
		r.mu.waiting = append(r.mu.waiting, c)
		log.Warn().Str("key", c.Path).Str("running", c.Old).Str("file", c.New).Msg("configuration: this key takes a restart; the daemon goes on with the running value")
	}
	file := r.path
	if file == "" {
		file = "none was given: --config names one"
	}
	log.Info().Str("file", file).Array("changed", changed).Msg("configuration reloaded")
}

// problemsOf is the lines of an error about a configuration.
func problemsOf(err error) []error {
	var all config.Errors
	if errors.As(err, &all) {
		return all.Unwrap()
	}
	return []error{err}
}

// stats is a snapshot; whole adds the running configuration.
func (r *reloads) stats(whole bool) (configStats, error) {
	running := r.running()
	r.mu.Lock()
	defer r.mu.Unlock()
	s := configStats{
		File: r.path, Loaded: r.mu.loaded, Reloads: r.mu.good, ReloadsBad: r.mu.failed, LastReloadOK: r.mu.ok,
		NeedsRestart: []waiting{},
	}
	for _, c := range r.mu.waiting {
		s.NeedsRestart = append(s.NeedsRestart, waiting{c.Path, c.Old, c.New})
	}
	if !whole {
		return s, nil
	}
	var text bytes.Buffer
	err := running.Print(&text)
	s.Running = text.String()
	return s, err
}
