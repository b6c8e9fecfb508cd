package remote

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/kvstored/kvstored/key"
)

// findWidth is how many keys are asked about at a time. With 8, 512 chunks
// that nothing is known of take at most three rounds.
const findWidth = 8

// A round waits for further answers findPatience times as long as the last one
// took, and at least findLeast. Then the search goes on around those who are
// late, in a few requests that it would else not make.
const (
	findPatience = 2
	findLeast    = 20 * time.Millisecond
)

// Find implements tier.Shared: how many of ks, a run of one chain in prefix
// order, are there. Writers store heads before tails, so that a search for the end
// of the stored run needs few requests; where that is not so a get finds the
// hole. found is told each time more is certain.
//
// The first round asks about both ends, or where the Bloom filter thinks the
// end is, and points in between; the next ones divide the rest in nine. A key
// that cannot be asked about ends the run; its error is returned together with
// the length of the run before it.
func (t *Tier) Find(ctx context.Context, ks []key.Key, found func(n int)) (int, error) {
	if err := t.usable(ctx, "find"); err != nil {
		return 0, err
	}
	ctx, cancel := context.WithCancel(ctx)
	s := &search{tier: t, ks: ks, hi: len(ks), asked: make([]bool, len(ks)), answers: make(chan probed, len(ks))}
	defer s.asking.Wait()
	defer cancel() // first: the answers still under way are not wanted
	hint := len(ks)
	for i, k := range ks {
		if hint == len(ks) && !t.known.has(k) {
			hint = i
		}
		if t.absent.has(k) {
			s.hi = i
			break
		}
	}
	for at := firstProbes(s.hi, min(hint, s.hi)); s.lo < s.hi; at = probes(s.lo, s.hi) {
		s.round(ctx, at, found)
	}
	return s.lo, s.err
}

// search is a Find under way.
type search struct {
	tier    *Tier
	ks      []key.Key
	lo, hi  int    // lo are there, ks[hi] is not, or cannot be asked about, or is beyond the end
	err     error  // why ks[hi] cannot be asked about
	asked   []bool // each at most once
	open    int    // asked and not answered
	answers chan probed
	asking  sync.WaitGroup
}

// probed is what became of asking about ks[i].
type probed struct {
	i     int
	there bool
	err   error
}

// round asks about the keys at the given places, those not asked about yet,
// and returns when all have answered that matter, or only late ones have not.
func (s *search) round(ctx context.Context, at []int, found func(n int)) {
	for _, i := range at {
		if s.asked[i] {
			continue
		}
		s.asked[i] = true
		s.open++
		s.asking.Go(func() {
			there, err := s.tier.exists(ctx, s.ks[i])
			s.answers <- probed{i, there, err}
		})
	}
	start := time.Now()
	late := time.NewTimer(time.Hour)
	late.Stop()
	defer late.Stop()
	for s.open > 0 && s.lo < s.hi {
		select {
		case a := <-s.answers:
			s.open--
			before := s.lo
			s.narrow(a)
			if found != nil && s.lo > before {
				found(s.lo)
			}
			late.Reset(max(findPatience*time.Since(start), findLeast))
		case <-late.C:
			if s.unasked() {
				return
			}
		}
	}
}

// narrow shortens the search by one answer.
func (s *search) narrow(a probed) {
	switch {
	case a.i < s.lo, a.i >= s.hi: // an answer from behind it was faster
	case a.there:
		s.lo = a.i + 1
	default:
		s.hi, s.err = a.i, a.err
	}
}

// unasked reports whether there is anything left to ask about.
func (s *search) unasked() bool { return slices.Contains(s.asked[s.lo:s.hi], false) }

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
