package history

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/e2e/daemon"
	"github.com/kvstored/kvstored/internal/admin"
)

// conditions are which of configurations are on.
type conditions struct{ aged, keeper, clock bool }

// options of a run.
type options struct {
	seed    uint64
	ops     int64         // that end it; 0 = none do
	span    time.Duration // that ends it; 0 = none does
	workers int
	conditions
	// wrap puts something between the workers and the daemon; nil: nothing.
	wrap func(store) store
	// setup, if not nil, is that of every life of the daemon.
	setup *setup
	// first ends the run at the first violation.
	first bool
}

// run is a daemon, its clients, and the history they saw.
type run struct {
	options
	t       *testing.T
	history *history
	prompts []prompt
	daemon  *daemon.Daemon
	wall    *clock // nil: the machine's
	// operator calls the admin.socket of any life.
	operator *admin.Client
	rng      *rand.Rand // the conductor's
	ops      atomic.Int64
	lives    int
	lost     bool // chunks did not get to the disk, in this life
	roomy    bool // in this life the disk has room for all

	// between is held by the conductor while there is no daemon, and until its prompts
	// are compared; workers hold it for each step.
	between sync.RWMutex
}

// newRun makes a run, whose daemon ends with the test.
func newRun(t *testing.T, o options) *run {
	t.Helper()
	r := &run{options: o, t: t, history: newHistory(), prompts: makePrompts(o.seed), rng: rand.New(rand.NewPCG(o.seed, 1))}
	if r.wrap == nil {
		r.wrap = func(s store) store { return s }
	}
	r.daemon = daemon.Folder(t)
	if o.clock {
		r.wall = newClock(t, r.daemon)
	}
	r.operator = admin.NewClient(config.AdminSocketOf(r.daemon.Socket), callTimeout)
	return r
}

// play runs to the end and returns what promises were broken.
func (r *run) play(ctx context.Context) ([]violation, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r.configure()
	if r.keeper {
		r.daemon.Keep()
	}
	r.daemon.Launch()
	r.awaitReady(ctx)
	var g errgroup.Group
	for n := range r.workers {
		g.Go(func() error { return r.work(ctx, n) })
	}
	err := r.conduct(ctx)
	cancel()
	if werr := g.Wait(); err == nil {
		err = werr
	}
	r.daemon.Kill()
	r.operator.Close()
	return r.history.violations(), err
}

// configure has the daemon's next life be another one.
func (r *run) configure() {
	s := setupOf(r.lives, r.rng)
	if r.setup != nil {
		s = *r.setup
	}
	r.lives++
	r.lost, r.roomy = false, s.disk == 0
	r.daemon.Configure(s.of(r.conditions))
}

// awaitReady waits until the chunks on disk are known. The process of the database
// outlives a kill of the daemon for a moment, in which the next one has no disk.
func (r *run) awaitReady(ctx context.Context) {
	for {
		st, err := r.daemon.Ready(ctx)
		if err != nil {
			r.t.Fatal(err)
		}
		if !st.Store.Tiers["disk"].Off {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// dial connects, as soon as there is something to connect to.
func (r *run) dial(ctx context.Context) (*client.Client, error) {
	for {
		c, err := client.Dial(ctx, r.daemon.Socket, client.Options{Name: "worker", Space: &space, StagingBytes: 2 << 20})
		if err == nil || ctx.Err() != nil {
			return c, err
		}
		pause(ctx, 10*time.Millisecond) // it was about to end, or begins
	}
}

// work is one worker, over all lives of the daemon.
func (r *run) work(ctx context.Context, n int) error {
	w := worker{history: r.history, writes: r.history, prompts: r.prompts, next: firstOf(n), aged: r.aged, rng: rand.New(rand.NewPCG(r.seed, uint64(n)+2))}
	for ctx.Err() == nil {
		c, err := r.dial(ctx)
		if err != nil {
			break
		}
		w.s = r.wrap(daemonStore{c, r.operator})
		for err == nil && ctx.Err() == nil {
			r.between.RLock()
			r.ops.Add(1)
			err = w.step(ctx)
			r.between.RUnlock()
		}
		_ = c.Close()
	}
	return nil
}

// over reports whether the run has come to its end.
func (r *run) over(begun time.Time) bool {
	return r.options.ops > 0 && r.ops.Load() >= r.options.ops || r.span > 0 && time.Since(begun) >= r.span ||
		r.first && len(r.history.violations()) > 0
}

// conduct lets things happen to the daemon and its clients.
func (r *run) conduct(ctx context.Context) error {
	kids := children{history: r.history, socket: r.daemon.Socket, seed: r.seed, aged: r.aged}
	var g errgroup.Group
	begun, told := time.Now(), time.Now()
	for !r.over(begun) && ctx.Err() == nil {
		pause(ctx, time.Duration(r.rng.Int64N(int64(400*time.Millisecond))))
		if ended, err := r.daemon.Ended(0); ended {
			return fmt.Errorf("the daemon has ended by itself: %w\n%s", err, r.daemon.Said())
		}
		if err := r.event(ctx, &kids, &g); err != nil {
			return err
		}
		if time.Since(told) > 10*time.Second {
			told = time.Now()
			r.t.Logf("%v: %d operations, %d lives, %+v, %d violations", time.Since(begun).Round(time.Second), r.ops.Load(), r.lives, r.history.counts(), len(r.history.violations()))
		}
	}
	return g.Wait()
}

// event is one thing that happens.
func (r *run) event(ctx context.Context, kids *children, g *errgroup.Group) error {
	if r.wall != nil && r.rng.IntN(3) == 0 {
		r.wall.step(time.Duration(r.rng.Int64N(int64(2*mostStep))) - mostStep)
	}
	switch n := r.rng.IntN(100); {
	case n < 25:
		if err := r.flush(ctx); err != nil {
			return err
		}
		if r.rng.IntN(2) == 0 {
			return r.restart(ctx, syscall.SIGKILL)
		}
	case n < 35:
		return r.restart(ctx, syscall.SIGKILL)
	case n < 43:
		return r.restart(ctx, syscall.SIGTERM)
	case n < 48:
		return r.with(ctx, r.purge)
	case n < 75 && !r.keeper: // which keeps nothing that is cleared
		return r.with(ctx, r.empty)
	case n < 90:
		seed := r.rng.Uint64()
		g.Go(func() error { return kids.one(ctx, rand.New(rand.NewPCG(seed, 0))) })
	}
	return nil
}

// with calls do with a connection of its own.
func (r *run) with(ctx context.Context, do func(context.Context, store) error) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	c, err := r.dial(ctx)
	if err != nil {
		return fmt.Errorf("connect to a daemon that runs: %w", err)
	}
	defer c.Close()
	return do(ctx, r.wrap(daemonStore{c, r.operator}))
}

// empty has everything read from below again.
func (r *run) empty(ctx context.Context, s store) error {
	err := s.Empty(ctx)
	r.history.emptied(now())
	if err != nil {
		return fmt.Errorf("clear DRAM: %w", err)
	}
	return nil
}

// purge deletes everything.
func (r *run) purge(ctx context.Context, s store) error {
	begin := now()
	for _, p := range r.prompts {
		r.history.deleting(p.hashes, begin)
	}
	err := s.Purge(ctx)
	for _, p := range r.prompts {
		r.history.deleted(p.hashes, begin, now(), err == nil)
	}
	if err != nil {
		return fmt.Errorf("purge: %w", err)
	}
	return nil
}

// flush has everything written and notes what must be there from now on. In a
// life in which nothing was dropped that is all that was stored, otherwise what
// the disk says it has.
func (r *run) flush(ctx context.Context) error {
	return r.with(ctx, func(ctx context.Context, s store) error {
		begin := now()
		stamps := make([][]uint64, len(r.prompts))
		for i, p := range r.prompts {
			stamps[i] = r.history.stamp(p.hashes)
		}
		whole, err := s.Flush(ctx, r.rng.IntN(4) == 0)
		if err != nil {
			return fmt.Errorf("flush: %w", err)
		}
		st, err := r.daemon.Ask(ctx)
		if err != nil {
			return err
		}
		if r.roomy && lost(st) == 0 { // a stalled disk makes DRAM drop some, which is no promise
			r.history.flushed(whole)
		}
		if r.lost = r.lost || lost(st) > 0; whole && !r.lost {
			r.history.promised(unflushed, begin)
		}
		for i, p := range r.prompts {
			if r.aged && p.aged { // what is found now may be gone in a moment
				continue
			}
			n, err := s.Lookup(ctx, p.Prompt, client.Disk)
			if err != nil {
				return fmt.Errorf("lookup: %w", err)
			}
			r.history.found(p.hashes[:n], stamps[i])
		}
		return nil
	})
}

// lost is how many chunks did not get to the disk, or not to stay.
func lost(st *daemon.Stats) uint64 {
	n := st.Store.Tiers["disk"].Evictions
	for _, d := range st.Store.Written["disk"].Dropped {
		n += d.Chunks
	}
	return n
}

// settled is how long before the end of a process a chunk is committed that a keeper has.
const settled = 100 * time.Millisecond

// restart ends the daemon and starts it again, and checks what is there before any client
// goes on.
func (r *run) restart(ctx context.Context, sig syscall.Signal) error {
	ends := r.aged && r.rng.IntN(2) == 0 // all, of what is on disk, while there is no daemon
	if ends {
		if err := r.flush(ctx); err != nil {
			return err
		}
	}
	if r.keeper {
		st, err := r.daemon.Ask(ctx)
		if err != nil {
			return err
		}
		if st.Store.Tiers["cpu"].Evictions == 0 {
			r.history.promised(unkept, now()-moment(settled))
		}
	}
	r.daemon.Signal(sig)
	_ = r.daemon.Wait() // how it ends is asked by others
	r.between.Lock()
	defer r.between.Unlock()
	r.history.restarted(now())
	if ends {
		pause(ctx, mostAge)
	}
	if r.wall != nil {
		r.wall.forward(time.Duration(r.rng.Int64N(int64(mostStep))))
	}
	r.configure()
	r.daemon.Launch()
	if r.aged {
		if err := r.whileScanned(ctx); err != nil {
			return err
		}
	}
	r.awaitReady(ctx)
	return r.with(ctx, r.check)
}

// whileScanned asks for prompts whose ends have come from the first moment on that the
// daemon answers until it knows its disk.
func (r *run) whileScanned(ctx context.Context) error {
	for round := 0; ; round++ {
		c, err := r.dial(ctx)
		if err != nil {
			return err
		}
		err = r.ends(ctx, daemonStore{c, r.operator}, fmt.Sprintf("round %d after a start", round))
		_ = c.Close()
		if err != nil {
			return err
		}
		if st, err := r.daemon.Ask(ctx); err != nil || !st.Store.Recovering {
			return err
		}
	}
}

// ends asks for prompts with ends, by a lookup and a read.
func (r *run) ends(ctx context.Context, s store, when string) error {
	for n, p := range r.prompts {
		if !p.aged {
			continue
		}
		begin := now()
		there, err := s.Lookup(ctx, p.Prompt, 0)
		if err != nil {
			return fmt.Errorf("lookup: %w", err)
		}
		r.history.there(p.hashes, there, begin, fmt.Sprintf("prompt %d, %s", n, when))
		if there > 0 && r.rng.IntN(4) == 0 {
			begin := now()
			chunks, err := s.Get(ctx, p.Prompt, 0)
			if err != nil {
				return fmt.Errorf("get: %w", err)
			}
			for i, b := range chunks {
				r.history.read(p.hashes[i], b, begin, now())
			}
		}
	}
	return nil
}

// comparedOf is of how many prompts one is read after a restart.
const comparedOf = 4

// check asks for every prompt, and reads some.
func (r *run) check(ctx context.Context, s store) error {
	for n, p := range r.prompts {
		what := fmt.Sprintf("prompt %d, after a restart", n)
		before, begin := r.history.musts(p.hashes), now()
		there, err := s.Lookup(ctx, p.Prompt, 0)
		if err != nil {
			return fmt.Errorf("lookup: %w", err)
		}
		r.history.missing(p.hashes, before, there, what)
		r.history.there(p.hashes, there, begin, what)
		if r.rng.IntN(comparedOf) > 0 || r.aged && p.aged { // which may end meanwhile
			continue
		}
		begin = now()
		chunks, err := s.Get(ctx, p.Prompt, 0)
		if err != nil {
			return fmt.Errorf("get: %w", err)
		}
		for i, b := range chunks {
			r.history.read(p.hashes[i], b, begin, now())
		}
		r.history.compared(p.hashes, there, len(chunks), what)
	}
	return nil
}
