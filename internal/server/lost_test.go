package server_test

import (
	"slices"
	"testing"
	"testing/synctest"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/internal/server"
	"github.com/kvstored/kvstored/internal/store"
	"github.com/kvstored/kvstored/tier"
)

// Tokens that one group cuts off are counted with the reason, and the chunks of the groups by
// kind and tier.
func TestUsableLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, options{capacity: 16 * mib})
		c, m := r.hybrid(10, 1)
		m.put(r.onDisk, 3, 7)
		ask := func() {
			t.Helper()
			j, err := c.Prefetch(t.Context(), client.Chain(m.chains[0][0]), client.PrefetchOptions{Groups: m.groups})
			r.must(err)
			_, err = j.Wait(t.Context(), client.All)
			r.must(err)
			r.must(j.Release(t.Context()))
		}
		ask()
		want := []server.Lost{{Group: "window", Reason: "never", Tokens: 3 * tokens}}
		if got := r.server.Stats().Lost; !slices.Equal(got, want) {
			t.Fatalf("%+v; want %+v", got, want)
		}
		r.onDisk(m.chains[1][0], 8, 10)
		r.onDisk(m.chains[2][0], 9, 10)
		ask() // nothing is lost
		state := m.chains[2][0]
		one := alone(state.Hashes[9])
		one.Space = m.groups[2].Space
		n, err := c.DeletePrompt(t.Context(), one)
		if r.must(err); n == 0 {
			t.Fatal("nothing was deleted")
		}
		ask()
		want = append(want, server.Lost{Group: "state", Reason: "evicted", Tokens: 3 * tokens})
		if got := r.server.Stats().Lost; !slices.Equal(got, want) {
			t.Fatalf("%+v; want %+v", got, want)
		}
		st := r.tiers.Operator.Stats()
		dram := st.Groups[tier.CPU]
		if got := []int{dram[0].Chunks, dram[1].Chunks, dram[3].Chunks}; !slices.Equal(got, []int{10, 4, 1}) {
			t.Errorf("%+v in DRAM; want 10 full chunks, 4 of windows, a state", dram)
		}
		names := make([]string, 0, len(dram))
		for _, g := range dram {
			names = append(names, g.Kind)
			if (g.Chunks > 0) != (g.Bytes > 0) || g.DeadBytes > g.Bytes {
				t.Errorf("%+v", g)
			}
		}
		if want := []string{"full", "window", "local", "state"}; !slices.Equal(names, want) {
			t.Errorf("kinds %v; want %v", names, want)
		}
		dead := func(gs []store.GroupStats) (n int64) {
			for _, g := range gs {
				n += g.DeadBytes
			}
			return n
		}
		if dead(dram) == 0 {
			t.Error("nothing is dead in DRAM, though no usable length needs the windows of 10")
		}
		if st.ResumePoints.Live == 0 {
			t.Error("no resume point is known")
		}
	})
}
