package store_test

import (
	"flag"
	"testing"

	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/index"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/internal/store"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
	"github.com/kvstored/kvstored/tier/tiertest"
)

var flushChunks = flag.Int("flush.chunks", 20_000, "chunks of TestFlushWithoutReaders")

// A flush depends on nothing that is only told: with the log overrun and nothing reading it,
// and DRAM a tenth of what is stored, each chunk is below afterwards. What the log has lost a
// walk through the index tells.
func TestFlushWithoutReaders(t *testing.T) {
	const bytes, prompt = 64, 1000
	n := arena.RoundUp(bytes) * int64(*flushChunks)
	r := newRig(t, options{
		capacity: max(4*mib, n/10), mode: held, disk: tiertest.NewMemory("disk", 2*n),
		log: index.LogOptions{Batches: 4, Changes: 4 * index.MaxBatch},
	})
	var chains []*key.Chain
	for seed := range *flushChunks / prompt {
		c, grants := tiertest.Chain(uint64(seed), prompt), make([]store.Grant, prompt)
		r.see(c)
		for from := 0; from < prompt; {
			got, err := r.Filler.Reserve(t.Context(), store.Reservation{Owner: ledger.Daemon, Patience: tier.Wait}, c, from, repeat(bytes, prompt-from), grants)
			if err != nil && got == 0 {
				t.Fatal(err)
			}
			commit(r.Store, c, from, fill(c, from, grants[:got]))
			from += got
		}
		chains = append(chains, c)
	}
	r.flush()
	if r.log.Oldest() == 0 {
		t.Fatal("the log has lost nothing; the test is about one that has")
	}
	there := make(map[key.Key]tier.Set)
	err := r.Operator.Contents(t.Context(), func(list []index.Change) error {
		for _, c := range list {
			there[c.Key] |= tier.Of(tier.Place(c.Place))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for seed, c := range chains {
		for i := range c.Len() {
			if k := c.Key(i); !r.disk.Has(k) || !there[k].Has(tier.Disk) {
				t.Fatalf("chunk %d of prompt %d: on disk %v, told of in %b", i, seed, r.disk.Has(k), there[k])
			}
		}
	}
	if d := r.Operator.Stats().Written[tier.Disk].Dropped; len(d) != 0 {
		t.Errorf("given up: %v", d)
	}
}
