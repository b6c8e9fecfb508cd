package remote

import (
	"context"

	"golang.org/x/sync/errgroup"

	"github.com/kvstored/kvstored/key"
)

// findWidth is how many keys are asked about at a time. With 8, 512 chunks
// that nothing is known of take at most three rounds.
const findWidth = 8

// Find implements tier.Shared: how many of ks, a run of one chain in prefix
// order, are there. Whoever stores chains stores heads before tails, so that a
// search for the end of what is there needs few requests; where that is not
// so a get finds the hole. found is told each time more is certain.
//
// The first round asks about both ends, or where the Bloom filter thinks the
// end is, and points in between; the next ones divide what is left in nine.
func (t *Tier) Find(ctx context.Context, ks []key.Key, found func(n int)) (int, error) {
	if err := t.usable(ctx, "find"); err != nil {
		return 0, err
	}
	lo, hi := 0, len(ks) // lo are there, ks[hi] is not or is beyond the end
	hint := len(ks)
	for i, k := range ks {
		if hint == len(ks) && !t.known.has(k) {
			hint = i
		}
		if t.absent.has(k) {
			hi = i
			break
		}
	}
	hint = min(hint, hi)
	for at := firstProbes(hi, hint); lo < hi; at = probes(lo, hi) {
		have := make([]bool, len(at))
		g, ctx := errgroup.WithContext(ctx)
		for j, i := range at {
			g.Go(func() (err error) {
				have[j], err = t.exists(ctx, ks[i])
				return err
			})
		}
		if err := g.Wait(); err != nil {
			return lo, err
		}
		for j, i := range at {
			if !have[j] {
				hi = i
				break
			}
			lo = i + 1
		}
		if found != nil && lo > 0 {
			found(lo)
		}
	}
	return lo, nil
}

// firstProbes picks where to ask first in a run of n of which the leading
// hint are probably there; ascending, each once.
func firstProbes(n, hint int) []int {
	edges := []int{0, n - 1} // most runs are there wholly or not at all
	if hint > 0 {
		edges = []int{hint - 1, min(hint, n-1)}
	}
	return spread(0, n, edges)
}

// probes divides lo..hi evenly.
func probes(lo, hi int) []int { return spread(lo, hi, nil) }

// spread picks up to findWidth points of lo..hi, edges among them; all of
// them if they are few.
func spread(lo, hi int, edges []int) []int {
	n := hi - lo
	if n <= findWidth {
		edges = nil
	}
	points := make(map[int]bool, findWidth)
	for _, e := range edges {
		points[e] = true
	}
	even := min(n, findWidth-len(edges))
	for j := range even {
		points[lo+(j+1)*(n+1)/(even+1)-1] = true
	}
	var out []int
	for i := lo; i < hi; i++ {
		if points[i] {
			out = append(out, i)
		}
	}
	return out
}
