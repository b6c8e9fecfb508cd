package tier

import (
	"sync/atomic"

	"github.com/kvstored/kvstored/internal/ledger"
)

type counters struct {
	loads        [Places]atomic.Uint64
	loadBytes    [Places]atomic.Uint64
	loadFailed   [Places]atomic.Uint64
	inconsistent atomic.Uint64
	corrupt      atomic.Uint64 // found wrong in DRAM
	corruptDown  atomic.Uint64 // of those, on their way down

	replaced      atomic.Uint64 // below, because they came after what was stored
	recoverFailed atomic.Uint64
}

// StackStats is a snapshot of the whole store.
type StackStats struct {
	Tiers        map[Place]Stats
	Loads        map[Place]Volume // chunks brought up to DRAM
	LoadFailed   map[Place]uint64
	Written      map[Place]Written
	Ledger       ledger.Stats // DRAM: budgets and protection
	Chunks       int64        // known in some tier
	Placeholders int64
	IndexBytes   int64
	Inconsistent uint64 // chunks refused because their chain contradicted what is known
	Corrupt      uint64 // chunks found wrong in DRAM and dropped
	CorruptDown  uint64 // of those, the ones found on their way down
	Recovering   bool

	Replaced      uint64 // older bytes below that gave way to what was stored under their key
	RecoverFailed uint64 // scans of the disk tier that failed
}

// Stats returns a snapshot; the parts are each consistent in themselves.
func (s *Stack) Stats() StackStats {
	st := StackStats{
		Tiers:        make(map[Place]Stats),
		Loads:        make(map[Place]Volume),
		LoadFailed:   make(map[Place]uint64),
		Written:      s.Written(),
		Ledger:       s.hot.Ledger().Stats(),
		Inconsistent: s.count.inconsistent.Load(),
		Corrupt:      s.count.corrupt.Load(),
		CorruptDown:  s.count.corruptDown.Load(),
		Recovering:   s.recovering.Load(),

		Replaced:      s.count.replaced.Load(),
		RecoverFailed: s.count.recoverFailed.Load(),
	}
	s.quotas.Lock()
	defer s.quotas.Unlock()
	for p := CPU; p < Places; p++ {
		if s.tiers[p] == nil {
			continue
		}
		t := s.tiers[p].Stats()
		for i := range t.Quotas {
			t.Quotas[i].Match = s.quotas.list[i].Match
		}
		st.Tiers[p] = t
		if p != CPU {
			st.Loads[p] = Volume{s.count.loads[p].Load(), s.count.loadBytes[p].Load()}
			st.LoadFailed[p] = s.count.loadFailed[p].Load()
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.mu.tree.Stats()
	st.Chunks, st.Placeholders, st.IndexBytes = int64(t.Chunks), int64(t.Placeholders), int64(t.Bytes)
	return st
}
