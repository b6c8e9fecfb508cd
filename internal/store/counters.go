package store

import (
	"github.com/kvstored/kvstored/internal/index"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/internal/writeback"
	"github.com/kvstored/kvstored/tier"
)

// Stats is a snapshot of the whole store.
type Stats struct {
	Tiers        map[tier.Place]tier.Stats        `json:"tiers"`
	Loads        map[tier.Place]writeback.Volume  `json:"loads"` // chunks promoted to DRAM
	LoadFailed   map[tier.Place]uint64            `json:"loads_failed"`
	Written      map[tier.Place]writeback.Written `json:"written"`
	Chunks       int64                            `json:"chunks"` // known in some tier
	Placeholders int64                            `json:"placeholders"`
	IndexBytes   int64                            `json:"index_bytes"`
	Inconsistent uint64                           `json:"inconsistent_chunks"` // chunks refused because their chain contradicted what is known
	Corrupt      uint64                           `json:"corrupt_in_dram"`     // chunks found wrong in DRAM and dropped
	Recovering   bool                             `json:"recovering"`

	// ResumePoints are the usable lengths of prompts of hybrid models that are known, and what
	// they need.
	ResumePoints index.ResumePointStats      `json:"boundaries"`
	Groups       map[tier.Place][]GroupStats `json:"groups,omitempty"` // by tier, then by kind; nil where there are none

	Replaced       uint64            `json:"replaced_below"`    // older bytes below that gave way to what was stored under their key
	RecoverFailed  uint64            `json:"recover_failed"`    // scans of the disk tier that failed
	ProtectedBytes int64             `json:"protected_bytes"`   // of DRAM, that cannot be evicted now
	DirtyBytes     int64             `json:"dirty_bytes"`       // of DRAM, that the tiers below lack
	ClassBytes     map[string]int64  `json:"class_bytes"`       // held in DRAM, by what for
	Aged           int               `json:"chunks_with_age"`   // that have a bound on their age
	AgedOut        uint64            `json:"chunks_aged_out"`   // removed because that was reached
	Distrusted     int               `json:"distrusted_spaces"` // of which all is a miss
	Mismatches     map[string]uint64 `json:"mismatches"`        // payloads and records with wrong bytes, by where that was found
}

// Stats returns a snapshot; the parts are each consistent in themselves.
func (s *Operator) Stats() Stats {
	down := s.writers.Count.CorruptDown.Load() // before corrupt, which it is a part of
	st := Stats{
		Tiers:        make(map[tier.Place]tier.Stats),
		Loads:        make(map[tier.Place]writeback.Volume),
		LoadFailed:   make(map[tier.Place]uint64),
		Written:      s.writers.Written(),
		Inconsistent: s.index.inconsistent.Load(),
		Corrupt:      s.writers.Count.Corrupt.Load(),
		Recovering:   s.levels.scanning() != 0,

		Replaced:      s.writers.Count.Replaced.Load(),
		RecoverFailed: s.recovery.failed.Load(),
		ClassBytes:    make(map[string]int64),
		Distrusted:    len(s.distrusted.All()),
	}
	hot, ages := s.levels.hot.Ledger().Stats(), s.ages.book.Stats()
	st.ProtectedBytes, st.DirtyBytes = hot.ProtectedBytes, hot.DirtyBytes
	st.Aged, st.AgedOut = ages.Chunks, ages.Removed
	for c, n := range hot.ClassBytes {
		st.ClassBytes[ledger.Class(c).String()] = n
	}
	s.quotas.Lock()
	defer s.quotas.Unlock()
	bounded := Bounded(s.quotas.list)
	for _, l := range s.levels.all {
		t := l.Tier.Tier.Stats()
		for i := range t.Quotas {
			t.Quotas[i].Match = bounded[i].Match
		}
		st.Tiers[l.Place] = t
		if l.rank > 0 {
			st.Loads[l.Place] = l.loads.Load()
			st.LoadFailed[l.Place] = l.failed.Load()
		}
	}
	t, bounds := s.index.stats()
	st.ResumePoints, st.Groups = bounds, s.index.groups.stats(s.levels)
	st.Chunks, st.Placeholders, st.IndexBytes = int64(t.Chunks), int64(t.Placeholders), int64(t.Bytes)
	st.Mismatches = mismatches(st.Tiers, st.Corrupt, down)
	return st
}

// mismatches counts wrong bytes by where they were found: in DRAM some, down of them when
// they were demoted or written.
func mismatches(tiers map[tier.Place]tier.Stats, inDRAM, down uint64) map[string]uint64 {
	out := map[string]uint64{"get": inDRAM - down, "demote": down}
	for p, t := range tiers {
		if p == tier.CPU {
			continue
		}
		out["promote"] += t.Corrupt - t.Counters["corrupt_scrub"]
		out["scrub"] += t.Counters["corrupt_scrub"]
		out["recovery"] += t.Counters["corrupt_recovery"]
	}
	return out
}
