package server_test

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/internal/explain"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/internal/store"
	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
	"github.com/kvstored/kvstored/tier/tierfault"
)

// TestMissedDeclined: of a chunk that a tier did not take, the reason is why. Each case has
// the first chunk that is missing declined for one reason.
func TestMissedDeclined(t *testing.T) {
	p := chain(1, 4)
	for name, c := range map[string]struct {
		o    options
		fail error // of the disk's puts of the first chunk
		prep func(r *rig, c *raw)
		want explain.Total
	}{
		"off":     {fail: tier.ErrOff, want: explain.Total{Tier: "disk", Reason: "declined_tier_off", Tokens: 4 * tokens}},
		"full":    {fail: tier.ErrNoSpace, want: explain.Total{Tier: "disk", Reason: "declined_no_space", Tokens: 4 * tokens}},
		"failing": {fail: errors.New("input/output error"), want: explain.Total{Tier: "disk", Reason: "declined_failed", Tokens: 4 * tokens}},
		"the budget of writes is spent": {
			o:    options{workers: 1},
			prep: func(r *rig, _ *raw) { r.tiers.Operator.Set(store.Settings{DiskBytesPerDay: 24 * 3 * size / 2}) },
			want: explain.Total{Tier: "disk", Reason: "declined_write_budget", Tokens: 2 * tokens},
		},
		"its client held all that it may": {
			o: options{limits: ledger.Limits{Lease: 2 * size}, lone: true},
			prep: func(r *rig, c *raw) {
				r.store(chain(4, 2), 0, 2)
				c.prefetch(chain(4, 2))
				c.refused(wire.CodeOverBudget, wire.OpReserve, &wire.ReserveRequest{Chain: c.chain(p), Sizes: wire.ViewU32s([]uint32{size})})
			},
			want: explain.Total{Tier: "cpu", Reason: "declined_over_budget", Tokens: 4 * tokens},
		},
		"nothing could be freed": {
			o: options{lone: true, roomWait: roomWait},
			prep: func(r *rig, c *raw) {
				r.greet(wire.FeatureArena | wire.FeatureStaging).reserve(chain(2, 16))
				c.refused(wire.CodeNoSpace, wire.OpReserve, &wire.ReserveRequest{Chain: c.chain(p), Sizes: wire.ViewU32s([]uint32{size})})
			},
			want: explain.Total{Tier: "cpu", Reason: "declined_crowded", Tokens: 4 * tokens},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c.o.capacity = 256 * kib
				if c.fail != nil {
					c.o.hook = tierfault.OnKey(tierfault.Put, p.Key(0), tierfault.Fault{Err: c.fail})
				}
				r := newRig(t, c.o)
				conn := r.greet(wire.FeatureArena | wire.FeatureStaging)
				if c.prep != nil {
					c.prep(r, conn)
				}
				if !c.o.lone {
					r.pass(p)
				}
				if got := r.missedOf(conn, p); len(got) != 1 || got[0] != c.want {
					t.Errorf("missed %+v, want %+v", got, c.want)
				}
			})
		})
	}
}

// pass stores p, and others until DRAM has evicted it.
func (r *rig) pass(p *key.Chain) {
	r.t.Helper()
	in := r.dial(client.Options{Inline: true})
	for _, c := range []*key.Chain{p, chain(2, 14), chain(3, 14)} {
		_, err := in.Put(r.t.Context(), client.Chain(c), 0, slices.Repeat([][]byte{make([]byte, size)}, c.Len()))
		r.must(err)
		r.must(r.tiers.Writers.Flush(r.t.Context(), false))
	}
}

// missedOf is what a prefetch of p misses.
func (r *rig) missedOf(c *raw, p *key.Chain) []explain.Total {
	r.t.Helper()
	before := r.server.Stats().Missed
	reply := c.prefetch(p)
	var st wire.JobState
	c.do(wire.OpWait, &wire.WaitRequest{Job: reply.Job, MinTokens: 4 * tokens}, &st)
	var end wire.ReleaseReply
	c.do(wire.OpRelease, &wire.IDRequest{ID: reply.Job}, &end)
	return minus(r.server.Stats().Missed, before)
}

// TestMissedNotAdmitted: a chunk that the policies had better use for is declined for that.
func TestMissedNotAdmitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := learning(t)
		c, ch := r.wellUsed()
		done := map[string]string{"turn_over": "done"}
		r.ask(c, ch, done)
		if _, err := c.Reserve(t.Context(), client.Chain(ch), client.ReserveOptions{Size: size}); !errors.Is(err, client.ErrDeclined) {
			t.Fatalf("reserve: %v", err)
		}
		before := r.server.Stats().Missed
		r.ask(c, ch, done)
		got := minus(r.server.Stats().Missed, before)
		if want := (explain.Total{Tier: "cpu", Reason: "declined_admission", Tokens: 4 * 1024}); len(got) != 1 || got[0] != want {
			t.Errorf("missed %+v, want %+v", got, want)
		}
	})
}
