package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/policy"
)

// leaseAge is short, so that leases are revoked under those who read for long.
const leaseAge = 150 * time.Millisecond

const startTimeout = time.Minute

// setup is what a life of the daemon is configured with.
type setup struct {
	mode, puts string
	policies   [2]string // of DRAM, of the disk
	unwritten  float64
	verify     int
	lease      time.Duration
}

var (
	modes    = []string{"through", "back", "selective", "auto"}
	policies = policy.All()
)

// setupOf picks one; the mode and DRAM's policy take turns.
func setupOf(n int, rng *rand.Rand) setup {
	return setup{
		mode: modes[n%len(modes)], puts: []string{"staged", "direct"}[rng.IntN(2)],
		policies:  [2]string{policies[n%len(policies)], policies[rng.IntN(len(policies))]},
		unwritten: []float64{0.1, 0.4}[rng.IntN(2)], verify: rng.IntN(3), lease: leaseAge,
	}
}

// daemon is one process at a time, over one folder.
type daemon struct {
	binary, dir string
	cmd         *exec.Cmd
	ended       chan struct{} // closed when the process has
}

func (d *daemon) socket() string { return filepath.Join(d.dir, "kvstored.sock") }

// start returns when the daemon answers and has scanned its disk.
func (d *daemon) start(ctx context.Context, s setup) error {
	text := fmt.Sprintf(`listen: {socket: %s}
admin: {listen: ""}
arena: {puts: %s, verify_hits: %d}
cpu: {capacity: 16MiB, policy: %s}
disk: {paths: [%s], capacity: 2GiB, segment_size: 64MiB, min_free: 0, policy: %s}
write: {mode: %s, min_hits: 1}
lease: {max_age: %s}
budget: {leases: 0.4, pins: 0.1, loads: 0.2, unwritten: %g}
log: {level: error}
`, d.socket(), s.puts, s.verify, s.policies[0], filepath.Join(d.dir, "disk"), s.policies[1], s.mode, s.lease, s.unwritten)
	file := filepath.Join(d.dir, "kvstored.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return err
	}
	log, err := os.OpenFile(filepath.Join(d.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	d.cmd = exec.Command(d.binary, "serve", "--config", file)
	d.cmd.Stderr = log
	if err := d.cmd.Start(); err != nil {
		return err
	}
	d.ended = make(chan struct{})
	go func(cmd *exec.Cmd, ended chan struct{}) {
		_ = cmd.Wait()
		close(ended)
	}(d.cmd, d.ended)
	return d.awaitReady(ctx)
}

// awaitReady waits until the chunks on disk are known. The process of the database
// outlives a kill of the daemon for a moment, in which the next one has no disk.
func (d *daemon) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		st, err := d.stats(ctx)
		if err == nil && !st.Store.Recovering && !st.Store.Tiers["disk"].Off {
			return nil
		}
		select {
		case <-d.ended:
			return fmt.Errorf("the daemon does not start; see %s", filepath.Join(d.dir, "log"))
		case <-ctx.Done():
			return fmt.Errorf("the daemon is not ready: %w", err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// stop ends the process, with a signal, and waits for its end.
func (d *daemon) stop(sig syscall.Signal) {
	_ = d.cmd.Process.Signal(sig)
	<-d.ended
}

// stats is what of the daemon's counters matters here.
type stats struct {
	Store struct {
		Recovering bool `json:"recovering"`
		Written    map[string]struct {
			Dropped map[string]struct{ Chunks uint64 } `json:"dropped"`
		} `json:"written"`
		Tiers map[string]struct {
			Evictions uint64 `json:"evictions"`
			Off       bool   `json:"off"`
		} `json:"tiers"`
	} `json:"store"`
}

// lost is how many chunks did not get to the disk, or not to stay.
func (s stats) lost() uint64 {
	n := s.Store.Tiers["disk"].Evictions
	for _, d := range s.Store.Written["disk"].Dropped {
		n += d.Chunks
	}
	return n
}

func (d *daemon) stats(ctx context.Context) (st stats, err error) {
	c, err := client.Dial(ctx, d.socket(), client.Options{Name: "conductor", Inline: true})
	if err != nil {
		return st, err
	}
	defer c.Close()
	raw, err := c.Stats(ctx)
	if err == nil {
		err = json.Unmarshal(raw, &st)
	}
	return st, err
}
