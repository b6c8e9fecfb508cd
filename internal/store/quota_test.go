package store_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kvstored/kvstored/internal/explain"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/internal/store"
	"github.com/kvstored/kvstored/internal/writeback"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
	"github.com/kvstored/kvstored/tier/tierfault"
	"github.com/kvstored/kvstored/tier/tiertest"
)

// newQuoted is a rig whose model has a chain of 8 chunks that no tier below has, and may
// have so many bytes from now on. Its writer, which hook slows down, has room for 2.
func newQuoted(t *testing.T, mode writeback.When, bytes int64, hook tierfault.Hook) (*rig, *key.Chain) {
	t.Helper()
	r := newRig(t, options{mode: mode, workers: 1, limits: ledger.Limits{Unwritten: 2 * size}, hook: hook})
	c := r.putChain(1, 8)
	r.Operator.OpenSpace(c.Space, "model")
	t.Cleanup(func() { r.Operator.CloseSpace(c.Space) })
	models := func() map[key.SpaceID]string { return map[key.SpaceID]string{c.Space: "model"} }
	if err := r.Operator.SetQuotas([]store.Quota{{Match: "model", Bytes: bytes}}, models); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
	return r, c
}

// beside is a chain in the space of another.
func beside(c *key.Chain, seed uint64, n int) *key.Chain {
	other := tiertest.Chain(seed, n)
	other.Space = c.Space
	return other
}

// TestQuotaWritesVictims: a store over its quota that may wait has what goes for it written
// first, also where the writer has no room at the moment.
func TestQuotaWritesVictims(t *testing.T) {
	for name, mode := range modes {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, c := newQuoted(t, mode, 8*size, tierfault.On(tierfault.Put, tierfault.Fault{Delay: time.Second}))
				all := []*key.Chain{c}
				for seed := range uint64(8) {
					all = append(all, beside(c, 10+seed, 1))
					r.store(ledger.Daemon, all[len(all)-1])
				}
				r.wantQuota(8)
				time.Sleep(time.Minute)
				for _, c := range all {
					if m := r.match(c); m.Chunks != c.Len() {
						t.Errorf("%d of %d chunks are left", m.Chunks, c.Len())
					}
				}
				r.wantWritten(map[bool]uint64{true: 8, false: 16}[mode == held], nil)
			})
		})
	}
}

// TestQuotaTakesLess: what a store over its quota asks for besides, and for which the
// writer has no room, is not granted at the cost of what would be lost.
func TestQuotaTakesLess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, c := newQuoted(t, held, 8*size, tierfault.On(tierfault.Put, tierfault.Fault{Delay: time.Second}))
		more, grants := beside(c, 2, 8), make([]store.Grant, 8)
		r.see(more)
		n, err := r.Filler.Reserve(t.Context(), store.Reservation{Owner: ledger.Daemon, Patience: tier.Wait}, more, 0, repeat(size, 8), grants)
		if n != 2 || !errors.Is(err, tier.ErrNoSpace) {
			t.Errorf("%d of 8 chunks are granted: %v; want as many as the writer has room for", n, err)
		}
		r.giveBack(grants[:n])
		time.Sleep(time.Minute)
		r.wantWritten(2, nil)
	})
}

// TestQuotaWaitEnds: a store over its quota whose time is over is told so, and nothing is
// lost for it. One that only tries is told that it must wait, and one that neither waits
// nor is patient takes what it needs, as where DRAM is full.
func TestQuotaWaitEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		r, c := newQuoted(t, held, 8*size, tierfault.On(tierfault.Put, tierfault.Fault{Until: gate}))
		for seed := range uint64(2) {
			r.store(ledger.Daemon, beside(c, 10+seed, 1))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		for _, tc := range []struct {
			want store.Reservation
			err  error
		}{
			{store.Reservation{Patience: tier.Try}, tier.ErrMustWait},
			{store.Reservation{Patience: tier.Patient}, tier.ErrNoSpace},
			{store.Reservation{Patience: tier.Wait}, context.DeadlineExceeded},
		} {
			one := beside(c, 20, 1)
			r.see(one)
			if n, err := r.Filler.Reserve(ctx, tc.want, one, 0, repeat(size, 1), make([]store.Grant, 1)); n != 0 || !errors.Is(err, tc.err) {
				t.Errorf("%+v: %d chunks are granted: %v", tc.want, n, err)
			}
		}
		r.wantWritten(0, nil)
		r.put(beside(c, 30, 1), 0, 1, size)
		r.wantWritten(0, map[explain.Decline]uint64{explain.QueueFull: 1})
		close(gate)
	})
}

// TestQuotaSetLater: what is over a quota that comes with a reload is written as the writer
// has room for it.
func TestQuotaSetLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, c := newQuoted(t, held, 2*size, tierfault.On(tierfault.Put, tierfault.Fault{Delay: time.Second}))
		time.Sleep(time.Minute)
		r.wantQuota(2)
		r.wantIn(c, 2, 6)
		r.wantWritten(6, nil)
	})
}

// wantQuota checks how many chunks DRAM has under the quota, which is kept.
func (r *rig) wantQuota(chunks int64) {
	r.t.Helper()
	q := r.hot.Ledger().Quotas()[0]
	if q.UsedBytes != chunks*size || q.UsedBytes > q.QuotaBytes || q.Refused != 0 {
		r.t.Errorf("want %d chunks: %+v", chunks, q)
	}
}
