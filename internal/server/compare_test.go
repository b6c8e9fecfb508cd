package server_test

import (
	"encoding/hex"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/tier/tiertest"
)

// Stored chunks are compared with those that a client would have stored: by
// length, and by the checksums that it gives. The stored bytes stay, in DRAM and
// on disk.
func TestReserveCompares(t *testing.T) {
	for _, where := range []string{"cpu", "disk"} {
		t.Run(where, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, options{})
				p := chain(7, 4)
				if where == "disk" {
					r.onDisk(p, 0, 3)
				} else {
					r.store(p, 0, 3)
				}
				c := r.dial(client.Options{})
				sum := func(i int) uint64 { return arena.Checksum(tiertest.Payload(p.Key(i), size)) }
				f, err := c.Reserve(t.Context(), client.Chain(p), client.ReserveOptions{
					Sizes: []uint32{size, size, size + 1, size}, Sums: map[int]uint64{0: sum(0), 1: sum(1) + 1, 3: 5, 99: 1},
				})
				r.must(err)
				for i, want := range []client.Code{client.Exists, client.Exists, client.Exists, client.Granted} {
					if f.Status(i) != want || f.Length(i) != size {
						t.Errorf("slot %d: %v of %d bytes, want %v of %d", i, f.Status(i), f.Length(i), want, size)
					}
				}
				if !slices.Equal(f.Differ(), []int{1}) {
					t.Errorf("slots %v differ, want 1", f.Differ())
				}
				st := r.server.Stats()
				if space := hex.EncodeToString(p.Space[:]); st.Differs != 2 || st.DiffersBySpace[space] != 2 {
					t.Errorf("counted %d, %v; want one of other bytes and one of another length", st.Differs, st.DiffersBySpace)
				}
				r.must(f.Abort(t.Context()))
				got, err := c.Get(t.Context(), client.Chain(p), client.GetOptions{})
				r.must(err)
				for i, chunk := range got {
					r.must(tiertest.CheckPayload(p.Key(i), chunk.Bytes))
				}
				if len(got) != 3 {
					t.Errorf("%d chunks are there, want 3", len(got))
				}
			})
		})
	}
}

// The hints of a batch's request configs hold for its prompts.
func TestBatchConfigs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, options{})
		c := r.greet(0)
		configs := wire.Pairs{}.Add("retain_priority", "80").Add("mine", "x")
		c.batch(wire.BatchRequest{Shared: wire.Shared{Configs: configs}}, c.chain(chain(8, 2)), c.chain(chain(9, 2)))
		if n := r.server.Stats().Retained.Chunks; n != 4 {
			t.Errorf("%d chunks are retained, want both of each prompt", n)
		}
	})
}
