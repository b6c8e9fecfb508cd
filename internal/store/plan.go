package store

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/kvstored/kvstored/internal/base"
	"github.com/kvstored/kvstored/internal/index"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/internal/stale"
	"github.com/kvstored/kvstored/internal/writeback"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/policy"
	"github.com/kvstored/kvstored/tier"
)

// Planning tells the policies that plan of whole prompts, and asks them which
// chunks are worth storing.
type Planning struct {
	levels     *levels
	writers    *writeback.Writers
	distrusted *stale.Distrusted
	planners   []tier.Planner // of the bounded tiers, nearest first
	depths     depths
	takesAll   bool          // there is a tier without bounds
	training   chan struct{} // capacity 1: a policy may have a training due
}

func newPlanning(levels *levels, writers *writeback.Writers, distrusted *stale.Distrusted) *Planning {
	p := &Planning{levels: levels, writers: writers, distrusted: distrusted, training: make(chan struct{}, 1)}
	for _, l := range levels.all {
		if l.Planner != nil {
			p.planners = append(p.planners, l.Planner)
		}
		p.takesAll = p.takesAll || l.Resident == nil
	}
	return p
}

// ErrNotAdmitted refuses a chunk because every tier has better use for its room.
var ErrNotAdmitted = fmt.Errorf("not worth the room of what is there: %w", tier.ErrNoSpace)

// Prompt is the facts of a request besides its chain.
type Prompt struct {
	Hint policy.Hint // see ledger.Request
	// Advice says that the request was announced before: only the hint is new.
	Advice bool
	// PrefillDepth is Quota.PrefillDepth as the client says it; 0 = it does not.
	PrefillDepth int
}

// Observe tells the policies that plan of a request for the chain, once a
// request and before anything of it is held or stored. To them it is the use
// that Touch is to the others.
func (s *Planning) Observe(c *key.Chain, p Prompt) {
	if c.Len() == 0 || !slices.ContainsFunc(s.planners, tier.Planner.Plans) {
		return
	}
	if !c.Alone {
		s.observe(c, 0, c.Len(), p)
		return
	}
	for i := range c.Len() {
		s.observe(c, i, i+1, p)
	}
}

// observe tells of chunks from..to of c as of one prompt.
func (s *Planning) observe(c *key.Chain, from, to int, p Prompt) {
	r := ledger.Request{
		Space: c.Space, Hashes: c.Hashes[from:to], ChunkTokens: int(c.Tokens[from]), Hint: p.Hint, Advice: p.Advice,
	}
	r.Tokens = int(c.TokensIn(from, to))
	for _, t := range s.planners {
		r.PrefillDepth = s.depths.of(c.Space, p.PrefillDepth)
		if t.Observe(&r) {
			base.Poke(s.training)
		}
	}
}

// ObserveFamily tells the policies that plan of the windows and states that a request for a
// prompt asks for, which Observe was told of before: those of the length that is usable,
// of the junction, and of the end. They are worth what the end of the prompt is.
func (s *Planning) ObserveFamily(f *Family, m *Plan, prefillDepth int) {
	if !f.isMixed() || f.Groups.OnlyStates() || !slices.ContainsFunc(s.planners, tier.Planner.Plans) {
		return
	}
	done := make([]int, len(f.Groups))
	for _, n := range []int{m.End, m.Run, f.whole()} {
		for g, group := range f.Groups {
			if n <= f.Skip || group.Kind == index.Full {
				continue
			}
			from, to := group.Needs(0, n)
			from, done[g] = max(from, done[g]), max(to, done[g])
			for r := range f.Chains[g] {
				if c := &f.Chains[g][r]; from < to {
					s.observeBeside(&ledger.Request{Space: c.Space, Hashes: c.Hashes[from:to], ChunkTokens: group.Chunk, Tokens: n, Beside: true}, prefillDepth)
				}
			}
		}
	}
}

func (s *Planning) observeBeside(r *ledger.Request, prefillDepth int) {
	for _, t := range s.planners {
		r.PrefillDepth = s.depths.of(r.Space, prefillDepth)
		t.Observe(r)
	}
}

// MarkCold says that the client is done with a chain: in every tier the chunks
// that are its alone are the first to go, until they are used.
func (s *Planning) MarkCold(c *key.Chain) {
	s.eachPrompt(c, func(hs []key.Hash) {
		for _, t := range s.planners {
			t.MarkCold(c.Space, hs)
		}
	})
}

// eachPrompt calls do with the hashes of each prompt that a chain is of: chunks that
// stand alone are one each.
func (s *Planning) eachPrompt(c *key.Chain, do func([]key.Hash)) {
	step := c.Len()
	if c.Alone {
		step = 1
	}
	for hs := range slices.Chunk(c.Hashes, max(step, 1)) {
		do(hs)
	}
}

// Admit returns how many of the chunks from..to of c, of size bytes each, some tier
// wants to have at most. A size of 0 is not known, and so small. A tier whose policy
// does not plan wants everything. A chunk that only a tier below has a use for comes to
// stay there if that has room; otherwise it must have been asked for before, as most never
// are again. Nothing is of a space that is distrusted.
func (s *Planning) Admit(c *key.Chain, from, to int, size uint32) (most int) {
	if s.distrusted.Has(c.Space) {
		return 0
	}
	if from == to || s.takesAll || slices.ContainsFunc(s.planners, func(t tier.Planner) bool { return !t.Plans() }) {
		return to - from
	}
	if c.Alone && to-from > 1 {
		for i := from; i < to; i++ {
			if s.Admit(c, i, i+1, size) == 0 {
				return i - from
			}
		}
		return to - from
	}
	for i, t := range s.planners {
		most = max(most, t.Admit(c.Space, c.Parent(from), c.Hashes[from:to], size, i > 0))
	}
	return most
}

// keepTraining has the policies trained beside the requests.
func (s *Planning) keepTraining(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.training:
			for _, t := range s.planners {
				t.Train()
			}
		}
	}
}

// Passed says that a client has done with chunks from..to of c for now, which
// has read or stored them. A prompt longer than DRAM then makes room for the rest
// of itself, and not other prompts: bytes is what one of its chunks takes.
func (s *Planning) Passed(c *key.Chain, from, to int, bytes int64) {
	if c.Alone || to <= from || int64(c.Len())*bytes <= s.levels.hot.Stats().CapacityBytes {
		return
	}
	s.levels.hot.Ledger().DropBehind(c.Space, c.Hashes[from:to])
}

// depths is how deep in a prompt a token takes twice as long to compute as the first
// one, by space.
type depths struct {
	mu struct {
		sync.RWMutex
		spaces map[key.SpaceID]spaceDepth
		peak   int // of spaces
	}
}

// spaceDepth is the depth of a space that so many clients have open.
type spaceDepth struct{ open, tokens int }

// begin notes that one client more has a space open, of so many tokens.
func (d *depths) begin(id key.SpaceID, tokens int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.mu.spaces == nil {
		d.mu.spaces = make(map[key.SpaceID]spaceDepth)
	}
	d.mu.spaces[id] = spaceDepth{d.mu.spaces[id].open + 1, tokens}
}

// end ends what begin began.
func (d *depths) end(id key.SpaceID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	sp := d.mu.spaces[id]
	if sp.open--; sp.open > 0 {
		d.mu.spaces[id] = sp
	} else {
		base.Delete(&d.mu.spaces, id, &d.mu.peak)
	}
}

// change replaces the depth of a space that is open.
func (d *depths) change(id key.SpaceID, tokens int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if sp, ok := d.mu.spaces[id]; ok {
		d.mu.spaces[id] = spaceDepth{sp.open, tokens}
	}
}

// of is the depth that policies are to be told for a prompt of a space, of which the client
// says that it is said, 0 for nothing; 0 where no rule has one, and chunks are ranked by
// their tokens.
func (d *depths) of(id key.SpaceID, said int) int {
	d.mu.RLock()
	defer d.mu.RUnlock()
	if ruled := d.mu.spaces[id].tokens; ruled == 0 || said == 0 {
		return ruled
	}
	return said
}

// Retainer knows which chunks are to be retained, and tells the ledger of a tier that
// has come to have one. It is called without locks, often, and must not wait.
type Retainer interface {
	Stored(k key.Key, bytes int64, in *ledger.Ledger)
}

// RetainBy has the store ask r of each chunk that comes to be in a tier. Call it
// before Run.
func (s *Store) RetainBy(r Retainer) { s.index.retainer = r }

// SizesOf is the payload bytes of chunks from..to of c, as far as a bounded tier has
// them, and else 0.
func (s *Planning) SizesOf(c *key.Chain, from, to int) []int64 {
	sizes := make([]int64, to-from)
	for i := range sizes {
		k := c.Key(from + i)
		for _, l := range s.levels.all {
			if l.Bounded == nil {
				continue
			}
			if e, st := l.Bounded.Ledger().Find(k); st == ledger.Resident {
				sizes[i] = int64(e.Size)
				break
			}
		}
	}
	return sizes
}

// Cool lets the chunks that are a chain's alone go from DRAM first, retained or not.
// They stay where a tier below has them. It does nothing where there is no such tier.
func (s *Planning) Cool(c *key.Chain) {
	if s.writers.Nearest(c.Space) == nil {
		return
	}
	s.eachPrompt(c, func(hs []key.Hash) { ledger.Cool(s.levels.hot.Ledger(), c.Space, hs) })
}

// retained has the tier p told how chunks that it has now are retained.
func (x *tierIndex) retained(p tier.Place, k key.Key, bytes uint32) {
	if l := x.levels.at[p]; x.retainer != nil && l.Bounded != nil {
		x.retainer.Stored(k, int64(bytes), l.Bounded.Ledger())
	}
}
