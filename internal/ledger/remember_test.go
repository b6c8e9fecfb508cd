package ledger_test

import (
	"testing"

	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/policy"
)

// Options.Entries bounds what a policy remembers of chunks that were only asked for: what
// was asked for twice is forgotten after that many others, and not before.
func TestEntriesBoundGhosts(t *testing.T) {
	const entries = 64
	for _, first := range []string{"tenure", "lru"} {
		t.Run(first, func(t *testing.T) {
			p, err := policy.New(first, 1<<20)
			if err != nil {
				t.Fatal(err)
			}
			l := ledger.New(ledger.Options{CapacityBytes: 1 << 20, Entries: entries, Policy: p, PolicyName: first})
			if first != "tenure" {
				if err := l.Tuning().SetPolicy("tenure"); err != nil {
					t.Fatal(err)
				}
			}
			ask := func(ks []key.Key) {
				r := ledger.Request{Space: ks[0].Space, ChunkTokens: 16}
				for _, k := range ks {
					r.Hashes = append(r.Hashes, k.Hash)
				}
				l.Planning().Observe(&r)
			}
			twice := chain(1, 1)
			seen := func() bool {
				return l.Planning().Admit(twice[0].Space, key.Hash{}, []key.Hash{twice[0].Hash}, page, 0, true) == 1
			}
			ask(twice)
			ask(twice)
			ask(chain(2, entries-1))
			if !seen() {
				t.Error("what was asked for twice is forgotten already")
			}
			ask(chain(3, 2))
			if seen() {
				t.Error("it is remembered beyond the bound")
			}
		})
	}
}
