package stack

import (
	"time"

	"github.com/kvstored/kvstored/tier"
)

// Settings are the options that can change while a Stack runs.
type Settings struct {
	// VerifyHits is how many leased chunks there are to one whose checksum
	// is computed again before it is leased; 0 = never.
	VerifyHits int
	// ScrubBytesPerSecond is how fast the disk is read in the background to
	// find payloads that have gone bad; 0 = not at all.
	ScrubBytesPerSecond int64
	// DiskBytesPerDay bounds the bytes written to the disk, against wear, with
	// bursts of up to an hour's share; 0 = unlimited.
	DiskBytesPerDay int64
	// UnsafeAge bounds how long WriteAuto leaves a chunk in DRAM alone, give or take
	// the seconds between two looks; 0 = not at all.
	UnsafeAge time.Duration
	// ByCompute is the tiers whose policies rank chunks by what these take to compute
	// again, and not by their tokens alone.
	ByCompute tier.Set
}

// Set replaces the settings. A pass of the scrub at another rate than the new
// one ends, and the next one begins anew. It is safe for concurrent use.
func (s *operator) Set(to Settings) {
	s.leases.verify.every.Store(uint64(to.VerifyHits))
	s.scrubs.setRate(to.ScrubBytesPerSecond)
	s.depths.rank(to.ByCompute)
	for _, l := range s.levels.below {
		l.writer.setUnsafeAge(to.UnsafeAge)
	}
	if l := s.levels.at[tier.Disk]; l != nil {
		l.writer.budget.set(to.DiskBytesPerDay)
	}
}
