package stack

import (
	"sync/atomic"

	"github.com/kvstored/kvstored/internal/age"
	"github.com/kvstored/kvstored/internal/boundary"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/tier"
)

type counters struct {
	corrupt     atomic.Uint64 // found wrong in DRAM
	corruptDown atomic.Uint64 // of those, when they were demoted or written

	replaced      atomic.Uint64 // below, because they came after what was stored
	recoverFailed atomic.Uint64
}

// StackStats is a snapshot of the whole store.
type StackStats struct {
	Tiers        map[tier.Place]tier.Stats
	Loads        map[tier.Place]Volume // chunks promoted to DRAM
	LoadFailed   map[tier.Place]uint64
	Written      map[tier.Place]Written
	Ledger       ledger.Stats // DRAM: budgets and protection
	Chunks       int64        // known in some tier
	Placeholders int64
	IndexBytes   int64
	Inconsistent uint64 // chunks refused because their chain contradicted what is known
	Corrupt      uint64 // chunks found wrong in DRAM and dropped
	CorruptDown  uint64 // of those, the ones found when they were demoted or written
	Recovering   bool

	// Boundaries are the usable lengths of prompts of hybrid models that are known, and what
	// they need.
	Boundaries boundary.Stats
	Groups     map[tier.Place][]GroupStats // by tier, then by kind; nil where there are none

	Replaced      uint64 // older bytes below that gave way to what was stored under their key
	RecoverFailed uint64 // scans of the disk tier that failed
	Ages          age.Stats
}

// Stats returns a snapshot; the parts are each consistent in themselves.
func (s *operator) Stats() StackStats {
	st := StackStats{
		Tiers:        make(map[tier.Place]tier.Stats),
		Loads:        make(map[tier.Place]Volume),
		LoadFailed:   make(map[tier.Place]uint64),
		Written:      s.levels.written(),
		Ledger:       s.hot.Ledger().Stats(),
		Inconsistent: s.index.inconsistent.Load(),
		Corrupt:      s.count.corrupt.Load(),
		CorruptDown:  s.count.corruptDown.Load(),
		Recovering:   s.scanning() != 0,

		Replaced:      s.count.replaced.Load(),
		RecoverFailed: s.count.recoverFailed.Load(),
		Ages:          s.ages.book.Stats(),
	}
	s.quotas.Lock()
	defer s.quotas.Unlock()
	bounded := Bounded(s.quotas.list)
	for _, l := range s.levels.all {
		t := l.tier.Stats()
		for i := range t.Quotas {
			t.Quotas[i].Match = bounded[i].Match
		}
		st.Tiers[l.place] = t
		if l.rank > 0 {
			st.Loads[l.place] = l.loads.load()
			st.LoadFailed[l.place] = l.failed.Load()
		}
	}
	t, bounds := s.index.stats()
	st.Boundaries, st.Groups = bounds, s.index.groups.stats(s.levels)
	st.Chunks, st.Placeholders, st.IndexBytes = int64(t.Chunks), int64(t.Placeholders), int64(t.Bytes)
	return st
}
