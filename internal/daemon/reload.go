package daemon

import (
	"bytes"
	"cmp"
	"context"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/internal/admin"
	"github.com/kvstored/kvstored/internal/base"
)

// reloads applies the configuration file anew to a running daemon, at each
// SIGHUP. All that can fail comes first; then everything changes, or nothing.
type reloads struct {
	daemon *Daemon
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

func newReloads(d *Daemon, o *Options) *reloads {
	r := &reloads{daemon: d, path: o.File, hup: o.Hangups}
	r.mu.running, r.mu.loaded, r.mu.ok = d.cfg, d.started, true
	return r
}

// run reloads until ctx ends.
func (r *reloads) run(ctx context.Context) error {
	for base.Await(ctx, r.hup) {
		r.reload(ctx)
	}
	return nil
}

// prepared is a reload that cannot fail any more.
type prepared struct {
	*config.Reloaded
	password string
}

func (r *reloads) reload(ctx context.Context) {
	if far := r.daemon.remote; far != nil {
		far.Reload()
	}
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
			s := settingsOf(&got.Next, got.password)
			r.daemon.apply(&s)
		}
		r.record(got.prepared, got.err)
	}
}

// prepare reads the file and the password file that it names.
func prepare(running *config.Config, path string) (p prepared, err error) {
	rules, err := Rules(true)
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
	c := r.mu.running
	r.mu.Unlock()
	return r.daemon.withPolicies(c)
}

// record logs the outcome of a reload, then counts it.
func (r *reloads) record(p prepared, err error) {
	var waiting []config.Change
	if err == nil {
		waiting = r.logReloaded(&p)
	} else {
		for line := range strings.Lines(err.Error()) { // one a problem
			r.daemon.log.Error().Msg("configuration not reloaded: " + strings.TrimSuffix(line, "\n"))
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.ok = err == nil; err != nil {
		r.mu.failed++
		return
	}
	r.mu.good++
	r.mu.running, r.mu.loaded, r.mu.waiting = p.Next, time.Now(), waiting
}

// logReloaded logs each change and returns the changes that take a restart.
func (r *reloads) logReloaded(p *prepared) (waiting []config.Change) {
	log, changed := &r.daemon.log, zerolog.Arr()
	for _, c := range p.Changes {
		if c.Live {
			changed.Str(c.Path + ": " + c.Old + " -> " + c.New)
			continue
		}
		waiting = append(waiting, c)
		log.Warn().Str("key", c.Path).Str("running", c.Old).Str("file", c.New).Msg("configuration: this key takes a restart; the daemon goes on with the running value")
	}
	log.Info().Str("file", cmp.Or(r.path, "none was given: --config names one")).Array("changed", changed).Msg("configuration reloaded")
	return waiting
}

// stats is a snapshot of one moment; whole adds the running configuration.
func (r *reloads) stats(whole bool) (admin.Config, error) {
	r.mu.Lock()
	running := r.mu.running
	s := admin.Config{
		File: r.path, Loaded: r.mu.loaded, Reloads: r.mu.good, ReloadsBad: r.mu.failed, LastReloadOK: r.mu.ok,
		NeedsRestart: append([]config.Change{}, r.mu.waiting...),
	}
	r.mu.Unlock()
	if !whole {
		return s, nil
	}
	running = r.daemon.withPolicies(running)
	var text bytes.Buffer
	err := running.Print(&text)
	s.Running = text.String()
	return s, err
}
