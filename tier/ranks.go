package tier

import (
	"context"

	"github.com/kvstored/kvstored/internal/fair"
	"github.com/kvstored/kvstored/key"
)

// MatchAll matches one chain in several spaces, such as those of the ranks of
// a tensor-parallel group: cs are the same hashes, each in its space. A chunk
// counts only if every space has it, and where the farthest of them is. each
// is filled with the run of every space alone.
func (s *Stack) MatchAll(ctx context.Context, cs []key.Chain, search Set, each []Match) (Match, error) {
	if len(cs) == 1 {
		m, err := s.Match(ctx, &cs[0], search)
		each[0] = m
		return m, err
	}
	far := borrow(cs[0].Len())
	defer far.give()
	n, err := s.farthest(ctx, cs, search&^s.off(), far.at, each)
	return measure(&cs[0], far.at[:n], search), err
}

// PlacesOf is where the first n chunks behind the skipped ones are that
// MatchAll has counted.
func (s *Stack) PlacesOf(ctx context.Context, cs []key.Chain, search Set, n int) ([]Place, error) {
	far := borrow(cs[0].Len())
	defer far.give()
	known, err := s.farthest(ctx, cs, search&^s.off(), far.at, make([]Match, len(cs)))
	if err != nil {
		return nil, err
	}
	var out []Place
	for i := cs[0].Skip; i < min(known, cs[0].Skip+n); i++ {
		p, ok := Set(far.at[i]).nearest()
		if !ok {
			break
		}
		out = append(out, p)
	}
	return out, nil
}

// farthest fills at with the farthest place, as a bit, of each chunk that
// every space knows, 0 where one does not have it, and returns how many those
// are.
func (s *Stack) farthest(ctx context.Context, cs []key.Chain, mask Set, at []uint8, each []Match) (int, error) {
	known := cs[0].Len()
	for r := range cs {
		sc := borrow(cs[r].Len())
		n := s.locateFor(ctx, &cs[r], sc.at)
		if s.recovering.Load() {
			fair.Leave(ctx)
			if err := s.ask(ctx, &cs[r], sc, &n); err != nil {
				sc.give()
				return 0, err
			}
		}
		each[r] = measure(&cs[r], sc.at[:n], mask)
		known = min(known, n)
		for i := range known {
			p, ok := (Set(sc.at[i]) & mask).nearest()
			switch {
			case !ok:
				at[i] = 0
			case r == 0:
				at[i] = uint8(Of(p))
			case at[i] != 0:
				at[i] = max(at[i], uint8(Of(p)))
			}
		}
		sc.give()
	}
	return known, nil
}
