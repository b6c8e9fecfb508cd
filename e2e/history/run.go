package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/internal/admin"
	"github.com/kvstored/kvstored/internal/broadcast"
)

// options of a run.
type options struct {
	binary, dir string
	seed        uint64
	ops         int64         // that end it; 0 = none do
	span        time.Duration // that ends it; 0 = none does
	workers     int
	// wrap puts something between the workers and the daemon; nil: nothing.
	wrap func(store) store
	// setup, if not nil, is that of every life of the daemon.
	setup *setup
	// first ends the run at the first violation.
	first bool
	log   func(format string, args ...any)
}

// run is a daemon, its clients, and the history they saw.
type run struct {
	options
	history *history
	prompts []prompt
	daemon  daemon
	// operator calls the admin.socket of any life.
	operator *admin.Client
	rng      *rand.Rand // the conductor's
	ops      atomic.Int64
	lives    int
	lost     bool // chunks did not get to the disk, in this life

	up struct {
		sync.Mutex
		began broadcast.Signal // a life of the daemon
	}
}

func newRun(o options) *run {
	r := &run{options: o, history: newHistory(), prompts: makePrompts(o.seed), rng: rand.New(rand.NewPCG(o.seed, 1))}
	if r.wrap == nil {
		r.wrap = func(s store) store { return s }
	}
	r.daemon = daemon{binary: o.binary, dir: o.dir}
	r.operator = admin.NewClient(config.AdminSocketOf(r.daemon.socket()), callTimeout)
	return r
}

// play runs to the end and returns what promises were broken.
func (r *run) play(ctx context.Context) ([]violation, error) {
	if err := r.begin(ctx); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var g errgroup.Group
	for n := range r.workers {
		g.Go(func() error { return r.work(ctx, n) })
	}
	err := r.conduct(ctx)
	cancel()
	if werr := g.Wait(); err == nil {
		err = werr
	}
	r.daemon.stop(syscall.SIGKILL)
	r.operator.Close()
	return r.history.violations(), err
}

// begin starts the daemon's next life.
func (r *run) begin(ctx context.Context) error {
	s := setupOf(r.lives, r.rng)
	if r.setup != nil {
		s = *r.setup
	}
	r.lives++
	r.lost = false
	if err := r.daemon.start(ctx, s); err != nil {
		return err
	}
	r.up.Lock()
	defer r.up.Unlock()
	r.up.began.Wake()
	return nil
}

// dial connects, as soon as there is something to connect to.
func (r *run) dial(ctx context.Context, direct bool) (*client.Client, error) {
	for {
		r.up.Lock()
		began := r.up.began.Next()
		r.up.Unlock()
		c, err := client.Dial(ctx, r.daemon.socket(), client.Options{Name: "worker", Space: &space, Direct: direct, StagingBytes: 2 << 20})
		if err == nil || ctx.Err() != nil {
			return c, err
		}
		select {
		case <-began:
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond): // it was about to end
		}
	}
}

// work is one worker, over all lives of the daemon.
func (r *run) work(ctx context.Context, n int) error {
	w := worker{history: r.history, writes: r.history, prompts: r.prompts, next: firstOf(n), rng: rand.New(rand.NewPCG(r.seed, uint64(n)+2))}
	for ctx.Err() == nil {
		c, err := r.dial(ctx, n%2 == 0)
		if err != nil {
			break
		}
		w.s = r.wrap(daemonStore{c, r.operator})
		for err == nil && ctx.Err() == nil {
			r.ops.Add(1)
			err = w.step(ctx)
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
	kids := children{history: r.history, socket: r.daemon.socket(), seed: r.seed}
	var g errgroup.Group
	begun, told := time.Now(), time.Now()
	for !r.over(begun) && ctx.Err() == nil {
		pause(ctx, time.Duration(r.rng.Int64N(int64(400*time.Millisecond))))
		select {
		case <-r.daemon.ended:
			return fmt.Errorf("the daemon has ended by itself; see the log in %s", r.daemon.dir)
		default:
		}
		if err := r.event(ctx, &kids, &g); err != nil {
			return err
		}
		if time.Since(told) > 10*time.Second {
			told = time.Now()
			r.log("%v: %d operations, %d lives, %+v, %d violations", time.Since(begun).Round(time.Second), r.ops.Load(), r.lives, r.history.counts(), len(r.history.violations()))
		}
	}
	return g.Wait()
}

// event is one thing that happens.
func (r *run) event(ctx context.Context, kids *children, g *errgroup.Group) error {
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
	case n < 75:
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
	c, err := r.dial(ctx, false)
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
		st, err := r.daemon.stats(ctx)
		if err != nil {
			return err
		}
		if r.lost = r.lost || st.lost() > 0; whole && !r.lost {
			r.history.promised(begin)
		}
		for i, p := range r.prompts {
			n, err := s.Lookup(ctx, p.Prompt, client.Disk)
			if err != nil {
				return fmt.Errorf("lookup: %w", err)
			}
			r.history.found(p.hashes[:n], stamps[i])
		}
		return nil
	})
}

// restart ends the daemon and starts it again, and checks that flushed chunks are
// there.
func (r *run) restart(ctx context.Context, sig syscall.Signal) error {
	r.daemon.stop(sig)
	r.history.restarted(now())
	if err := r.begin(ctx); err != nil {
		return err
	}
	return r.with(ctx, r.check)
}

// check asks for every prompt.
func (r *run) check(ctx context.Context, s store) error {
	for n, p := range r.prompts {
		before := r.history.musts(p.hashes)
		there, err := s.Lookup(ctx, p.Prompt, 0)
		if err != nil {
			return fmt.Errorf("lookup: %w", err)
		}
		r.history.missing(p.hashes, before, there, fmt.Sprintf("prompt %d, after a restart", n))
	}
	return nil
}

// clean removes what a run without violations leaves.
func (r *run) clean() { _ = os.RemoveAll(r.dir) }
