package tier

import (
	"context"
	"fmt"

	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/key"
)

// Open reserves room for n bytes that no chain knows. They get their key only
// when they have arrived, with Replace; until then k, which nobody else may
// use, stands for them. Abort gives the room back.
//
// It evicts what it must, and with wait it waits for room until ctx ends.
func (s *Stack) Open(ctx context.Context, o ledger.Owner, k key.Key, n int, wait bool) (Ref, error) {
	ref, st, err := s.hot.Reserve(ctx, Fill{
		Record: Record{Key: k, Tokens: 1, Size: uint32(n)},
		Owner:  o, Class: ledger.Lease, Wait: wait, Writing: s.writing, Drop: s.drop,
	})
	if err != nil {
		return Ref{}, fmt.Errorf("open: %w", err)
	}
	if st != ledger.Absent {
		return Ref{}, fmt.Errorf("open: key %v is in use", k)
	}
	return ref, nil
}

// Replace makes a filled and sealed block from Open visible as c, a chain of
// one chunk, in place of whatever was stored under that key. Readers of the
// old bytes keep them. The ref is the caller's no more, also after an error,
// and then nothing is stored under the key or what was is still there.
//
// Two calls for one key must not overlap, nor one with a Delete of it: the
// caller sees to that.
func (s *Stack) Replace(ctx context.Context, c *key.Chain, ref Ref) error {
	k := c.Key(0)
	var released <-chan struct{}
	for {
		if _, err := s.Delete(ctx, []key.Key{k}); err != nil {
			s.hot.Abort([]Ref{ref})
			return fmt.Errorf("replace: %w", err)
		}
		switch st := s.hot.Ledger().Rekey(ref.ID, k); {
		case st == ledger.Absent:
			return s.commit(c, 0, []Ref{ref}, []bool{true})
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
			s.hot.Abort([]Ref{ref})
			return fmt.Errorf("replace: the old bytes are still on their way up: %w", context.Cause(ctx))
		}
	}
}
