package server_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/tier"
	"github.com/kvstored/kvstored/tier/tierfault"
)

func TestWarm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, options{})
		p := chain(1, 6)
		r.store(p, 0, 2)
		r.onDisk(p, 2, 6)
		c, ctx := r.dial(client.Options{}), t.Context()
		m, st, err := c.Warm(ctx, client.Chain(p), 0, patience)
		r.must(err)
		if m.Total.Chunks != 6 || m.Tiers[1].Chunks != 4 {
			t.Errorf("matched %+v", m)
		}
		if !st.Done || st.Reason != client.Complete || st.Ready.Chunks != 6 || st.Ready.Tokens != 6*tokens || st.Tiers[0].Chunks != 2 || st.Tiers[1].Chunks != 4 {
			t.Errorf("state %+v", st)
		}
		if r.leased() != 0 || r.hot.Ledger().Stats().Owners != 0 {
			t.Errorf("%d bytes are leased: %+v", r.leased(), r.hot.Ledger().Stats())
		}
		if s := r.server.Stats(); s.WarmChunks != 4 || s.WarmBytes != 4*size {
			t.Errorf("counted %d chunks with %d bytes", s.WarmChunks, s.WarmBytes)
		}
		j, err := c.Prefetch(ctx, client.Chain(p), client.PrefetchOptions{})
		r.must(err)
		if n, _ := j.Ready(); n != 6 {
			t.Errorf("%d chunks are ready at once", n)
		}
		r.must(j.Release(ctx))
	})
}

// A prompt that was prefetched under a lookup id can be warmed by it, by any
// connection of the same user, long after the job has ended.
func TestWarmNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, options{})
		p := chain(1, 4)
		r.onDisk(p, 0, 4)
		a, b, ctx := r.dial(client.Options{}), r.dial(client.Options{}), t.Context()
		if _, _, err := b.WarmNamed(ctx, "req-1", 0, 0); !errors.Is(err, client.ErrNotFound) {
			t.Errorf("before anybody asked: %v", err)
		}
		j, err := a.Prefetch(ctx, client.Chain(p), client.PrefetchOptions{LookupID: "req-1", Search: client.CPU})
		r.must(err)
		r.must(j.Release(ctx))
		_, st, err := b.WarmNamed(ctx, "req-1", 0, patience)
		r.must(err)
		if st.Ready.Chunks != 4 || st.Tiers[1].Chunks != 4 {
			t.Errorf("state %+v", st)
		}
	})
}

// An answer at once does not end the warming; the end of the connection does.
func TestWarmEndsWithItsConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hook, open := gate()
		r := newRig(t, options{hook: hook})
		p := chain(1, 4)
		r.onDisk(p, 0, 4)
		c, ctx := r.dial(client.Options{}), t.Context()
		_, st, err := c.Warm(ctx, client.Chain(p), 0, 0)
		r.must(err)
		if st.Done || st.Ready.Chunks != 0 {
			t.Errorf("at once: %+v", st)
		}
		if _, st, err = c.Warm(ctx, client.Chain(p), 0, 10*time.Millisecond); err != nil || st.Done {
			t.Errorf("at the timeout: %+v, %v", st, err)
		}
		c.Close()
		r.until("the connection is gone", func() bool { return r.server.Stats().Connections == 0 })
		close(open)
	})
}

func TestWarmStopsAtTheFirstFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := chain(1, 8)
		r := newRig(t, options{hook: tierfault.OnKey(tierfault.Get, p.Key(5), tierfault.Fault{Err: tier.ErrOff})})
		r.onDisk(p, 0, 8)
		_, st, err := r.dial(client.Options{}).Warm(t.Context(), client.Chain(p), 0, patience)
		r.must(err)
		if st.Ready.Chunks != 5 || st.Reason != client.StoppedFailed || st.FailedTier != "disk" {
			t.Errorf("%+v", st)
		}
	})
}

// A warm brings up half of DRAM at most.
func TestWarmIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, options{capacity: 256 * kib})
		p := chain(1, 20)
		for i := 0; i < 20; i += 5 {
			r.onDisk(p, i, i+5)
		}
		_, st, err := r.dial(client.Options{}).Warm(t.Context(), client.Chain(p), 0, patience)
		r.must(err)
		if st.Reason != client.StoppedNoSpace || st.Ready.Chunks < 8 || st.Ready.Chunks > 12 {
			t.Errorf("%+v; want about 8 of 20 chunks", st)
		}
	})
}

func TestWarmRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hook, open := gate()
		r := newRig(t, options{hook: hook})
		defer close(open)
		p := chain(1, 2)
		r.onDisk(p, 0, 2)
		c := r.greet(0)
		c.refused(wire.CodeNotFound, wire.OpWarm, &wire.WarmRequest{Chain: wire.Chain{Form: wire.FormNone}, LookupID: "nobody"})
		c.refused(wire.CodeBadRequest, wire.OpWarm, &wire.WarmRequest{Chain: wire.Chain{Form: wire.FormNone}})
		c.refused(wire.CodeUnknownJob, wire.OpWarm, &wire.WarmRequest{Chain: refChain(9)})
		c.refused(wire.CodeUnknownSpace, wire.OpWarm, &wire.WarmRequest{Chain: wire.Chain{Space: 99}})
		c.refused(wire.CodeBadRequest, wire.OpWarm, bodyOf("\x02"))
		for range 64 {
			c.do(wire.OpWarm, &wire.WarmRequest{Chain: c.chain(p)}, &wire.WarmReply{})
		}
		c.refused(wire.CodeOverBudget, wire.OpWarm, &wire.WarmRequest{Chain: c.chain(p)})
	})
}
