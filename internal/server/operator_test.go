package server_test

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/internal/server/hint"
	"github.com/kvstored/kvstored/internal/store"
	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/tier"
)

func TestPinsAreListedAndRevoked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, options{})
		p, q := chain(1, 4), chain(2, 2)
		r.store(p, 0, 4)
		r.store(q, 0, 2)
		ctx, a, b := t.Context(), r.dial(client.Options{Name: "a"}), r.dial(client.Options{Name: "b"})
		for _, pin := range []struct {
			c    *client.Client
			of   client.Prompt
			name string
		}{{a, client.Chain(p), "x"}, {b, client.Chain(p), "x"}, {b, client.Chain(q), "y"}} {
			_, err := pin.c.Pin(ctx, pin.of, pin.name, 0)
			r.must(err)
		}
		pins, holders, more := r.server.Held(100)
		if more != 0 || len(pins) != 3 || pins[0].Name != "x" || pins[0].Chunks != 4 || pins[0].Bytes != 4*size ||
			pins[0].Connection == pins[1].Connection || pins[2].Name != "y" || pins[2].Space != p.Space.String() || pins[2].ExpiresSeconds <= 0 {
			t.Errorf("pins %+v", pins)
		}
		if len(holders) != 2 || holders[1].Name != "b" || holders[1].PinBytes != 6*size || holders[1].LeaseBytes != 0 {
			t.Errorf("holders %+v", holders)
		}
		if pins, holders, more := r.server.Held(1); len(pins) != 1 || len(holders) != 1 || more != 3 {
			t.Errorf("of each the first: %+v, %+v, %d more", pins, holders, more)
		}
		n := r.server.RevokePins(func(by *hint.Claimant) bool { return by.Name == "x" })
		if n != 8 || r.pinned() != 2*size {
			t.Errorf("%d chunks freed, %d bytes pinned", n, r.pinned())
		}
		n = r.server.RevokePins(func(*hint.Claimant) bool { return true })
		if n != 2 || r.pinned() != 0 {
			t.Errorf("%d chunks freed, %d bytes pinned", n, r.pinned())
		}
		if n := r.server.RevokePins(func(by *hint.Claimant) bool { return by.Name == "x" }); n != 0 {
			t.Errorf("a name that is gone: %d", n)
		}
	})
}

func TestConnectionIsRevoked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, options{})
		p := chain(1, 4)
		r.store(p, 0, 4)
		c := r.greet(wire.FeatureArena | wire.FeatureStaging)
		job, f := c.prefetch(p), c.reserve(chain(2, 3))
		for _, name := range []string{"x", "y"} { // the same chunks: no more bytes
			c.do(wire.OpPin, &wire.PinRequest{Chain: c.chain(p), LookupID: name}, &wire.PinReply{})
		}
		_, holders, _ := r.server.Held(100)
		if len(holders) != 1 || holders[0].LeaseBytes != 7*size || holders[0].PinBytes != 4*size {
			t.Fatalf("holders %+v", holders)
		}
		n, ok := r.server.RevokeConnection(holders[0].Connection)
		if !ok || n != 15 || r.leased() != 0 || r.pinned() != 0 {
			t.Errorf("%d chunks freed; still leased %d, pinned %d", n, r.leased(), r.pinned())
		}
		if n, ok = r.server.RevokeConnection(holders[0].Connection); !ok || n != 0 {
			t.Errorf("again: %d, %t", n, ok)
		}
		var out wire.ReleaseReply
		if c.do(wire.OpRelease, &wire.IDRequest{ID: job.Job}, &out); out.Code != wire.CodeRevoked {
			t.Errorf("released: %s", out.Code)
		}
		c.refused(wire.CodeRevoked, wire.OpCommit, &wire.FillRequest{Fill: f.Fill})
		if n, ok := r.server.RevokeConnection(1 << 40); ok || n != 0 {
			t.Errorf("no such connection: %d, %t", n, ok)
		}
		c.prefetch(p) // it stays
	})
}

func TestPolicyIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, options{})
		p := chain(1, 8)
		r.store(p, 0, 8)
		c := r.dial(client.Options{})
		job, err := c.Prefetch(t.Context(), client.Chain(p), client.PrefetchOptions{})
		r.must(err)
		r.must(r.tiers.Operator.SetPolicy(tier.CPU, "s3fifo"))
		if name, ok := r.tiers.Operator.PolicyOf(tier.CPU); !ok || name != "s3fifo" || r.tiers.Operator.Stats().Tiers[tier.CPU].Policy != "s3fifo" {
			t.Errorf("the policy is %q", name)
		}
		if n, _ := job.Ready(); n != 8 || r.leased() != 8*size {
			t.Errorf("%d chunks, %d bytes leased", n, r.leased())
		}
		r.must(job.Release(t.Context()))
		if n := r.hot.Ledger().Stats().Entries; n != 8 {
			t.Errorf("%d entries after the switch", n)
		}
		if err := r.tiers.Operator.SetPolicy(tier.Remote, "lru"); !errors.Is(err, tier.ErrNotFound) {
			t.Errorf("no such tier: %v", err)
		}
	})
}

func TestClear(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, options{})
		p := chain(1, 4)
		r.store(p, 0, 4)
		r.must(r.tiers.Writers.Flush(t.Context(), false))
		r.until("the index knows the disk", func() bool { return r.disk.Stats().Entries == 4 })
		c := r.dial(client.Options{})
		match := func() client.Match {
			m, err := c.Lookup(t.Context(), client.Chain(p), 0)
			r.must(err)
			return m
		}
		n, err := r.tiers.Remover.Clear(t.Context(), tier.Of(tier.CPU))
		if r.must(err); n != 4 || match().Tiers[0].Chunks != 0 || match().Tiers[1].Chunks != 4 {
			t.Errorf("%d cleared in DRAM; left %+v", n, match())
		}
		n, err = r.tiers.Remover.Clear(t.Context(), 0)
		if r.must(err); n != 4 || match().Total.Chunks != 0 || r.disk.Stats().Entries != 0 {
			t.Errorf("%d cleared; left %+v", n, match())
		}
		if _, err := r.tiers.Remover.Clear(t.Context(), tier.Of(tier.Remote)); !errors.Is(err, tier.ErrNotFound) {
			t.Errorf("no such tier: %v", err)
		}
		if st := r.tiers.Operator.Stats(); st.Chunks != 0 || st.Placeholders != 0 {
			t.Errorf("the index keeps %d chunks, %d placeholders", st.Chunks, st.Placeholders)
		}
	})
}

// A space over its quota evicts its own; when nothing of it can go, the answer
// says why.
func TestQuota(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const quota = 4 * size
		r := newRig(t, options{quotas: []store.Quota{{Match: space.Model, Bytes: quota}}})
		other := space
		other.Model = "other"
		c := r.dial(client.Options{})
		foreign, err := c.OpenSpace(t.Context(), other)
		r.must(err)
		theirs := client.Chain(chainIn(other, 9, 8))
		theirs.Space = foreign
		store := func(p client.Prompt, n int) []client.Stored {
			t.Helper()
			payloads := make([][]byte, n)
			for i := range payloads {
				payloads[i] = make([]byte, size)
			}
			out, err := c.Put(t.Context(), p, 0, payloads)
			r.must(err)
			_, err = c.Flush(t.Context(), false) // what waits for the disk cannot go
			r.must(err)
			return out
		}
		store(theirs, 8)
		store(client.Chain(chain(1, 4)), 4)
		store(client.Chain(chain(2, 2)), 2)
		use := r.tiers.Operator.Stats().Tiers[tier.CPU].Quotas[0]
		if use.Match != "m" || use.UsedBytes != quota || use.Evictions != 2 || use.Refused != 0 {
			t.Errorf("quota %+v", use)
		}
		if m, err := c.Lookup(t.Context(), theirs, client.CPU); err != nil || m.Total.Chunks != 8 {
			t.Errorf("the other space has %+v, %v", m, err)
		}
		if m, _ := c.Lookup(t.Context(), client.Chain(chain(1, 4)), client.CPU); m.Total.Chunks != 2 {
			t.Errorf("%+v of the older chain; want its tail gone", m)
		}
		// A chain longer than the quota: a head that is leased cannot go for its tail.
		store(client.Chain(chain(3, 4)), 4)
		raw := r.greet(wire.FeatureArena | wire.FeatureStaging)
		raw.prefetch(chain(3, 4))
		out := store(client.Chain(chain(3, 6)), 6)
		for i, s := range out {
			if want := i < 4; s.Code.Present() != want {
				t.Errorf("chunk %d: %s", i, s.Code)
			}
		}
		if out[4].Code != client.ResultOverQuota || out[5].Code != client.ResultOverQuota {
			t.Errorf("chunk 4: %s, 5: %s", out[4].Code, out[5].Code)
		}
		raw.refused(wire.CodeOverQuota, wire.OpReserve, &wire.ReserveRequest{
			Chain: raw.chain(chain(4, 1)), Sizes: wire.ViewU32s([]uint32{size}),
		})
	})
}
