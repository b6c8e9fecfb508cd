package tier

import (
	"context"

	"github.com/kvstored/kvstored/key"
)

// MatchAll matches one chain in several spaces, such as those of the ranks of
// a tensor-parallel group: cs are the same hashes, each in its space. A chunk
// counts only if every space has it, and where the farthest of them is. each
// is filled with the run of every space alone, for Rest.
func (s *Stack) MatchAll(ctx context.Context, cs []key.Chain, search Set, each []Match) (Match, error) {
	if len(cs) == 1 {
		m, err := s.Match(ctx, &cs[0], search)
		each[0] = m
		return m, err
	}
	mask := search &^ s.off()
	far := borrow(cs[0].Len()) // by chunk: the farthest place, as a bit
	defer far.give()
	known := cs[0].Len()
	for r := range cs {
		sc := borrow(cs[r].Len())
		n := s.locate(&cs[r], sc.at)
		if s.recovering.Load() {
			if err := s.ask(ctx, &cs[r], sc, &n); err != nil {
				sc.give()
				return Match{}, err
			}
		}
		each[r] = measure(&cs[r], sc.at[:n], mask)
		known = min(known, n)
		for i := range known {
			p, ok := (Set(sc.at[i]) & mask).nearest()
			at := uint8(Of(p))
			switch {
			case !ok, r > 0 && far.at[i] == 0:
				at = 0
			case r > 0:
				at = max(at, far.at[i])
			}
			far.at[i] = at
		}
		sc.give()
	}
	return measure(&cs[0], far.at[:known], mask), nil
}
