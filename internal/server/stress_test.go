package server_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/internal/server"
	"github.com/kvstored/kvstored/policy"
	"github.com/kvstored/kvstored/tier"
	"github.com/kvstored/kvstored/tier/tiertest"
)

var stressVisits = flag.Int("stress", 15, "how often each client of the stress test comes")

// Many clients do everything at once in an arena that is much too small, and
// leases are short. Bytes that were read under a lease that held are the bytes
// that were stored, and at the end nothing is left.
func TestStress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const prompts, chunks = 24, 12
		// The shares of a default configuration.
		limits := ledger.Limits{Lease: 26 * size, Pin: 13 * size, Load: 13 * size, Unwritten: 13 * size, Total: 52 * size}
		r := newRig(t, options{
			capacity: 64 * size,
			limits:   limits,
			Options: server.Options{Settings: server.Settings{
				LeaseMaxAge: 20 * time.Millisecond, PinMaxAge: 20 * time.Millisecond,
				Prefetch: server.Prefetch{Deadline: 20 * time.Millisecond, WindowBytes: 4 * size},
			}},
		})
		ctx, cancel := context.WithCancel(t.Context())
		var read, revoked atomic.Int64
		var clients, watch sync.WaitGroup
		for w := range uint64(16) {
			clients.Go(func() {
				s := stress{r: r, rnd: rand.New(rand.NewPCG(w, 7)), read: &read, revoked: &revoked}
				for n := 0; n < *stressVisits && ctx.Err() == nil; n++ {
					if err := s.visit(ctx, prompts, chunks); err != nil && ctx.Err() == nil {
						t.Error(err)
						cancel()
					}
				}
			})
		}
		watch.Go(func() { r.watch(ctx, limits) })
		clients.Wait()
		cancel()
		watch.Wait()
		r.until("everybody has left", func() bool { return r.server.Stats().Connections == 0 })
		if read.Load() == 0 || revoked.Load() == 0 {
			t.Error("no lease held, or none was revoked")
		}
		t.Logf("%d chunks read, %d leases revoked, %+v", read.Load(), revoked.Load(), r.server.Stats())
	})
}

// watch replaces the policy again and again, and samples the budgets, which hold
// against greedy clients.
func (r *rig) watch(ctx context.Context, limits ledger.Limits) {
	l, names := r.hot.Ledger(), policy.All()
	for i := 0; ctx.Err() == nil; i++ {
		if i%100 == 0 {
			if err := r.tiers.Operator.SetPolicy(tier.CPU, names[i/100%len(names)]); err != nil {
				r.t.Error(err)
			}
		}
		s := l.Stats()
		for c, limit := range []int64{limits.Lease, limits.Pin, limits.Load, limits.Unwritten} {
			if s.ClassBytes[c] > limit {
				r.t.Errorf("%s: %d bytes, the budget is %d", ledger.Class(c), s.ClassBytes[c], limit)
			}
		}
		if s.ProtectedBytes > limits.Total || s.EvictableBytes < 0 {
			r.t.Errorf("%d bytes protected, the budget is %d; %d evictable", s.ProtectedBytes, limits.Total, s.EvictableBytes)
		}
		time.Sleep(50 * time.Microsecond)
	}
}

// stress is one client after another.
type stress struct {
	r             *rig
	rnd           *rand.Rand
	read, revoked *atomic.Int64
}

// visit connects, does some things, and leaves in the middle of something.
func (s *stress) visit(ctx context.Context, prompts, chunks int) error {
	o := client.Options{Dialer: s.r.dialer(), Space: &space, Inline: s.rnd.IntN(4) == 0}
	c, err := client.Dial(ctx, s.r.socket, o)
	if err != nil {
		return err
	}
	defer c.Close()
	for range s.rnd.IntN(30) {
		n := 1 + s.rnd.IntN(chunks)
		seed := uint64(s.rnd.IntN(prompts))
		if err := s.one(ctx, c, seed, n); err != nil {
			return err
		}
	}
	if s.rnd.IntN(2) == 0 { // leave something open
		_, _ = c.Prefetch(ctx, client.Chain(chain(1, chunks)), client.PrefetchOptions{})
		_, _ = c.Reserve(ctx, client.Chain(chain(uint64(prompts), 2)), client.ReserveOptions{Size: size})
	}
	return nil
}

func (s *stress) one(ctx context.Context, c *client.Client, seed uint64, n int) error {
	p := chain(seed, n)
	prompt := client.Chain(p)
	var err error
	switch s.rnd.IntN(10) {
	case 0, 1, 2:
		from := s.rnd.IntN(n)
		err = put(ctx, c, p, from, n)
	case 3, 4, 5, 6:
		err = s.readUnderLease(ctx, c, seed, n)
	case 7:
		var got []client.Chunk
		got, err = c.Get(ctx, prompt, client.GetOptions{Deadline: 5 * time.Millisecond})
		for i, ch := range got {
			if err := tiertest.CheckPayload(p.Key(i), ch.Bytes); err != nil {
				return fmt.Errorf("get: %w", err)
			}
		}
	case 8:
		id := fmt.Sprint(s.rnd.IntN(4))
		if _, err = c.Pin(ctx, prompt, id, 0); err == nil {
			_, err = c.Unpin(ctx, fmt.Sprint(s.rnd.IntN(4)))
		}
	case 9:
		if s.rnd.IntN(4) == 0 {
			_, err = c.DeletePrompt(ctx, prompt)
		} else {
			_, err = c.Lookup(ctx, prompt, 0)
		}
	}
	return s.tolerate(err)
}

// tolerate takes what a full or short-lived store may answer.
func (s *stress) tolerate(err error) error {
	for _, e := range []error{client.ErrNoSpace, client.ErrDeclined, client.ErrOverBudget, client.ErrRevoked, client.ErrUnknownFill, context.DeadlineExceeded} {
		if errors.Is(err, e) {
			return nil
		}
	}
	return err
}

func (s *stress) readUnderLease(ctx context.Context, c *client.Client, seed uint64, n int) error {
	p := chain(seed, n)
	o := client.PrefetchOptions{Pin: s.rnd.IntN(4) == 0, LookupID: "l", Policy: client.WaitPolicy(s.rnd.IntN(4))}
	j, err := c.Prefetch(ctx, client.Chain(p), o)
	if err != nil {
		return err
	}
	if s.rnd.IntN(4) == 0 {
		_, err := j.Cancel(ctx)
		return err
	}
	if _, err := j.Wait(ctx, int64(s.rnd.IntN(n+2)*tokens)); err != nil {
		return err
	}
	ready, _ := j.Ready()
	copies := make([][]byte, ready)
	for i := range copies {
		copies[i] = make([]byte, size)
		if _, err := j.Copy(ctx, copies[i], i); errors.Is(err, client.ErrRevoked) {
			copies = copies[:i]
			break
		} else if err != nil {
			return fmt.Errorf("copy: %w", err)
		}
		if s.rnd.IntN(8) == 0 {
			time.Sleep(time.Duration(s.rnd.IntN(25)) * time.Millisecond)
		}
	}
	err = j.Release(ctx)
	if errors.Is(err, client.ErrRevoked) {
		s.revoked.Add(1)
		return nil // what was read may be anything
	}
	if err != nil {
		return err
	}
	for i, b := range copies {
		if err := tiertest.CheckPayload(p.Key(i), b); err != nil {
			return fmt.Errorf("read under a lease that held: %w", err)
		}
	}
	s.read.Add(int64(len(copies)))
	return nil
}
