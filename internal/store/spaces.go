package store

import (
	"context"
	"slices"
	"time"

	"github.com/kvstored/kvstored/internal/explain"
	"github.com/kvstored/kvstored/internal/index"
	"github.com/kvstored/kvstored/internal/stale"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

// Spaces returns how many chunks of each space some tier is known to have;
// spaces with none are left out. It counts a few hundred spaces at a time, so
// that no request waits long for the index, however many chunks are in them; one that comes or
// goes meanwhile may be missing.
func (s *Operator) Spaces() map[key.SpaceID]int {
	chunks := make(map[key.SpaceID]int)
	for next := s.index.census(0, chunks); next != 0; {
		next = s.index.census(next, chunks)
	}
	return chunks
}

// HotBytes is how much of DRAM the chunks of a space occupy.
func (s *Operator) HotBytes(id key.SpaceID) int64 { return s.levels.hot.Ledger().SpaceBytes(id) }

// DiskBytes is how much of the disk tier they occupy.
func (s *Operator) DiskBytes(id key.SpaceID) int64 {
	if l := s.levels.at[tier.Disk]; l != nil && l.Bounded != nil {
		return l.Bounded.Ledger().SpaceBytes(id)
	}
	return 0
}

// Summary is all that the tiers are known to have, as a tree of prefixes. It lets requests
// in between: what changes meanwhile may be in it or not.
func (s *Operator) Summary(ctx context.Context) (*explain.Summary, error) {
	m := summaryBuilder{spaces: make(map[key.SpaceID]int), at: make(map[uint32]int)}
	begun := time.Now()
	for next := s.index.stretches(1, &m); next != 0; next = s.index.stretches(next, &m) {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
	ends := s.hotPrefixes.Ends()
	s.index.each(0, len(ends), func(i int) {
		e := &ends[i]
		at, ok := m.at[index.RunOf(s.index.mu.tree, e.Key.Space, e.Key.Hash)]
		if !ok {
			return
		}
		r := &m.runs[at]
		r.Heat += e.Heat
		if e.Last.After(r.Last) {
			r.Last = e.Last
		}
	})
	for i := range m.list {
		id := m.list[i].ID
		m.list[i].Bytes = [explain.Places]int64{tier.CPU: s.HotBytes(id), tier.Disk: s.DiskBytes(id)}
	}
	tree := explain.NewSummary(begun, m.list, m.runs)
	tree.LeftOut = m.leftOut
	return tree, nil
}

// Distrusted is the spaces of which everything is a miss.
func (s *Operator) Distrusted() *stale.Distrusted { return s.distrusted }

// Knows reports whether chunks of a space are known, at the cost of a look-up.
func (s *Operator) Knows(id key.SpaceID) bool {
	s.index.lock()
	defer s.index.mu.Unlock()
	return index.Has(s.index.mu.tree, id)
}

// Announce notes in the log all that the tiers are known to have of a space, in order with
// other changes. It lets requests in between.
func (s *Operator) Announce(ctx context.Context, id key.SpaceID) error {
	t, err := s.index.walk(ctx, &id)
	if err != nil {
		return err
	}
	return t.visit(ctx, func(ks []key.Key) error {
		s.index.contents(ks, s.index.journal.log.Note)
		return nil
	})
}

// Contents calls visit with all that the tiers are known to have, a few hundred
// chunks at a time and a chunk before those that follow it. What changes meanwhile
// may be in it or not: the log has it. The slice is valid until visit returns.
func (s *Operator) Contents(ctx context.Context, visit func([]index.Change) error) error {
	t, err := s.index.walk(ctx, nil)
	if err != nil {
		return err
	}
	var list []index.Change
	return t.visit(ctx, func(ks []key.Key) error {
		list = list[:0]
		s.index.contents(ks, func(c index.Change) { list = append(list, c) })
		return visit(slices.DeleteFunc(list, func(c index.Change) bool { return c.Kind == index.Removed })) // of a distrusted space
	})
}

// summaryBatch is how many chunks a summary looks at while it holds the index.
const summaryBatch = 16 << 10

// summaryBuilder makes a summary.
type summaryBuilder struct {
	spaces  map[key.SpaceID]int
	list    []explain.Space
	runs    []explain.Run
	at      map[uint32]int // position of a run by its number
	leftOut int
}

// stretches adds some runs; next is where it goes on, or 0.
func (x *tierIndex) stretches(from uint32, m *summaryBuilder) (next uint32) {
	x.lock()
	defer x.mu.Unlock()
	return index.EachStretch(x.mu.tree, from, summaryBatch, m.add)
}

func (m *summaryBuilder) add(st *index.Stretch) {
	if len(m.runs) == explain.MostRuns {
		m.leftOut++
		return
	}
	space, known := m.spaces[st.Space]
	if !known {
		space = len(m.list)
		m.spaces[st.Space] = space
		m.list = append(m.list, explain.Space{ID: st.Space})
	}
	m.at[st.Run] = len(m.runs)
	m.runs = append(m.runs, explain.Run{
		Number: st.Run, Parent: st.Parent, Detached: st.Detached, Space: space, First: st.First, Length: st.Chunks,
		Use: explain.Use{Chunks: st.Known, In: st.In},
	})
}
