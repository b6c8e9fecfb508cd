package stack

import (
	"context"
	"fmt"

	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

// Open reserves room for n bytes that no chain knows. They get their key only
// when they have arrived, with Replace; until then k, which no other caller may
// use, stands for them. Abort gives the room back.
//
// It evicts chunks where it must, and with wait it waits for room until ctx ends.
func (s *filler) Open(ctx context.Context, o ledger.Owner, k key.Key, n int, wait bool) (tier.Ref, error) {
	ref, st, err := s.hot.Reserve(ctx, tier.Fill{
		Record: tier.Record{Key: k, Tokens: 1, Size: uint32(n)},
		Owner:  o, Class: ledger.Lease, Wait: wait, Writing: s.writing, Drop: s.demote,
	})
	if err != nil {
		return tier.Ref{}, fmt.Errorf("open: %w", err)
	}
	if st != ledger.Absent {
		return tier.Ref{}, fmt.Errorf("open: key %v is in use", k)
	}
	return ref, nil
}

// Replace makes a filled and sealed block from Open visible as c, a chain of
// one chunk, in place of the chunk that was stored under that key. Readers of the
// old bytes keep them. The ref is the caller's no more, also after an error,
// and then nothing is stored under the key or the old chunk is still there.
//
// Two calls for one key must not overlap, nor one with a Delete of it: the
// caller sees to that.
func (s *filler) Replace(ctx context.Context, c *key.Chain, ref tier.Ref) error {
	k := c.Key(0)
	var released <-chan struct{}
	for {
		if err := s.remover.deleteOne(ctx, k); err != nil {
			s.hot.Abort([]tier.Ref{ref})
			return fmt.Errorf("replace: %w", err)
		}
		switch st := s.hot.Ledger().Rekey(ref.ID, k); {
		case st == ledger.Absent:
			s.commit(c, 0, []tier.Ref{ref}, 0, []bool{true})
			return nil
		case st == ledger.Resident: // somebody has stored it just now
			continue
		case released == nil: // taken before the next try, to miss nothing
			released = s.hot.Ledger().Released()
			continue
		}
		select { // a load is at it, and will find that they were deleted
		case <-released:
			released = nil
		case <-ctx.Done():
			s.hot.Abort([]tier.Ref{ref})
			return fmt.Errorf("replace: the old bytes are still in flight to DRAM: %w", context.Cause(ctx))
		}
	}
}
