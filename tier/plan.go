package tier

import (
	"context"
	"fmt"
	"slices"

	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/policy"
)

// Planner is a bounded tier whose policy may plan (see policy.Planner): it is
// told of whole prompts, and may find a chunk not worth its room. All of it is
// memory only.
type Planner interface {
	// Plans reports whether the present policy does. If not, Announce does
	// nothing and everything is worth storing.
	Plans() bool
	// Announce tells the policy of a prompt and reports whether there is
	// something to Learn.
	Announce(r *ledger.Request) (learn bool)
	// Worth returns how many of hs, chunks of size bytes one after the other
	// behind the chunk parent, are worth storing: there is room, or they are
	// worth more than what would go for them and, with twice, have been asked
	// for twice.
	Worth(space key.SpaceID, parent key.Hash, hs []key.Hash, size uint32, twice bool) int
	// Cool makes the chunks that are the chain's alone the first to go, unless
	// a policy plans: it was told with Announce.
	Cool(space key.SpaceID, hs []key.Hash)
	// Learn does what learning is due.
	Learn()
	// Learned is what the policy has learned, nil if it learns nothing, and
	// Teach gives it what another process has.
	Learned() ([]byte, error)
	Teach(data []byte) error
}

// ErrUnworthy refuses a chunk because every tier has better use for its room.
var ErrUnworthy = fmt.Errorf("not worth the room of what is there: %w", ErrNoSpace)

// Prompt is what is known of a request besides its chain.
type Prompt struct {
	Hint policy.Hint // see ledger.Request
	// Advice says that the request was announced before: only the hint is new.
	Advice bool
}

// Announce tells the policies that plan of a request for the chain, once a
// request and before anything of it is held or stored. To them it is the use
// that Touch is to the others.
func (s *Stack) Announce(c *key.Chain, p Prompt) {
	if c.Len() == 0 || !slices.ContainsFunc(s.planners, Planner.Plans) {
		return
	}
	if !c.Alone {
		s.announce(c, 0, c.Len(), p)
		return
	}
	for i := range c.Len() {
		s.announce(c, i, i+1, p)
	}
}

// announce tells of chunks from..to of c as of one prompt.
func (s *Stack) announce(c *key.Chain, from, to int, p Prompt) {
	r := ledger.Request{
		Space: c.Space, Hashes: c.Hashes[from:to], ChunkTokens: int(c.Tokens[from]), Hint: p.Hint, Advice: p.Advice,
	}
	for _, n := range c.Tokens[from:to] {
		r.Tokens += int(n)
	}
	for _, t := range s.planners {
		if t.Announce(&r) {
			s.lessonDue()
		}
	}
}

// Cool says that nobody is expected to ask for a chain again: in every tier
// the chunks that are its alone are the first to go, until they are used.
func (s *Stack) Cool(c *key.Chain) {
	step := c.Len()
	if c.Alone {
		step = 1
	}
	for hs := range slices.Chunk(c.Hashes, max(step, 1)) {
		for _, t := range s.planners {
			t.Cool(c.Space, hs)
		}
	}
}

// Worth returns how many of the chunks of c from `from` on, of size bytes each,
// are worth storing now, at most. A size of 0 is not known, and so small.
// Without policies that plan it is all.
func (s *Stack) Worth(c *key.Chain, from int, size uint32) int {
	return s.worth(c, from, c.Len(), size)
}

// worth returns how many of the chunks from..to of c, of size bytes each, some
// tier wants to have. One whose policy does not plan wants everything. A chunk
// that only a tier below has a use for comes to stay there if that has room;
// otherwise it must have been asked for before, as most never are again.
func (s *Stack) worth(c *key.Chain, from, to int, size uint32) (most int) {
	if from == to || s.takesAll || !s.allPlan() {
		return to - from
	}
	if c.Alone && to-from > 1 {
		for i := from; i < to; i++ {
			if s.worth(c, i, i+1, size) == 0 {
				return i - from
			}
		}
		return to - from
	}
	for i, t := range s.planners {
		most = max(most, t.Worth(c.Space, c.Parent(from), c.Hashes[from:to], size, i > 0))
	}
	return most
}

func (s *Stack) allPlan() bool {
	for _, t := range s.planners {
		if !t.Plans() {
			return false
		}
	}
	return true
}

func (s *Stack) lessonDue() {
	select {
	case s.lesson <- struct{}{}:
	default:
	}
}

// keepLearning has the policies learn beside the requests.
func (s *Stack) keepLearning(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.lesson:
			for _, t := range s.planners {
				t.Learn()
			}
		}
	}
}

// wants decides whether the tier is to have a chunk: its policy says so, or
// whoever stored it insists; and what it hangs on is there, or has just been
// taken to be written. It is called with the mutex held, for the chunks of a
// prompt in their order.
func (w *writer) wants(t *writeTask) bool {
	if w.planner == nil || !w.planner.Plans() || w.stack.recovering.Load() {
		return true
	}
	r := &t.rec
	if up := (key.Key{Space: r.Key.Space, Hash: r.Parent}); r.Parent != (key.Hash{}) && !w.mu.writing[up].wanted {
		if res, ok := w.to.(Resident); ok && !res.Has(up) && !(t.victim > 0 && w.mayCome(up)) {
			return false
		}
	}
	return w.insists(t) || w.planner.Worth(r.Key.Space, r.Parent, []key.Hash{r.Key.Hash}, r.Size, false) > 0
}

// mayCome reports whether what a victim hangs on may still come: victims come
// tail first, so that it was in DRAM until now, or is on its way here. What is
// in neither place any more was deleted. It is called with the mutex held.
func (w *writer) mayCome(k key.Key) bool {
	e, st := w.stack.hot.Ledger().Find(k)
	_, waits := w.mu.queued[k]
	return st != ledger.Resident || e.Value.B&vain == 0 || waits
}

// markVain notes at an entry of DRAM whether the tier wants it. It reports
// whether that did not want it before either.
func (w *writer) markVain(t *writeTask) (again bool) {
	if w.planner == nil || t.victim > 0 || t.below {
		return false
	}
	l := w.stack.hot.Ledger()
	v := l.Get(t.ref.ID).Value
	again = t.vain && v.B&vain != 0
	if v.B &^= vain; t.vain {
		v.B |= vain
	}
	l.SetValue(t.ref.ID, v)
	return again
}

// insists reports whether whoever stored a chunk wants it kept in any case.
func (w *writer) insists(t *writeTask) bool {
	if t.victim > 0 || t.below {
		return t.rec.Insists
	}
	return HotRecord(w.stack.hot.Ledger().Get(t.ref.ID), 0).Insists
}
