package daemon

import (
	"fmt"
	"time"

	"github.com/kvstored/kvstored/internal/human"
	"github.com/kvstored/kvstored/tier"
)

// Restart is what a stop and a start would cost now.
type Restart struct {
	WriteBytes int64   `json:"write_bytes"` // that only DRAM has, at most
	Seconds    float64 `json:"seconds"`     // to write them to disk, as fast as that went so far; 0: not known
	DRAMBytes  int64   `json:"dram_bytes"`
	DRAMKept   bool    `json:"dram_kept"` // by a keeper
	Sentence   string  `json:"sentence"`
}

// restart is the cost by statistics that were just read. took is the sum of what writes to
// disk took, as many of which were under way as there are workers; limit is stop.flush.
func restart(s *Stats, kept bool, took, limit time.Duration) Restart {
	r := Restart{WriteBytes: s.Store.DirtyBytes, DRAMBytes: s.Store.Tiers[tier.CPU].UsedBytes, DRAMKept: kept}
	disk, ok := s.Store.Tiers[tier.Disk]
	if bytes := float64(disk.PutBytes) * float64(max(1, s.Store.Written[tier.Disk].Workers)); bytes > 0 && !disk.Off {
		r.Seconds = float64(r.WriteBytes) * took.Seconds() / bytes
	}
	if r.DRAMBytes == 0 {
		return r
	}
	r.Sentence = "A restart now " + r.writes(ok && !disk.Off, limit) + r.keeps(ok && !disk.Off)
	return r
}

// writes is the part of the sentence about the writes of a stop.
func (r *Restart) writes(disk bool, limit time.Duration) string {
	switch {
	case !disk:
		return "writes nothing to disk; "
	case r.WriteBytes == 0:
		return "has nothing to write; "
	case r.Seconds == 0:
		return fmt.Sprintf("writes up to %s first, in %s at most; ", human.Bytes(r.WriteBytes), limit)
	case r.Seconds > limit.Seconds():
		return fmt.Sprintf("has %s to write, which takes about %s: stop.flush allows %s, and the rest is computed again; ", human.Bytes(r.WriteBytes), human.Seconds(r.Seconds), limit)
	}
	return fmt.Sprintf("writes up to %s first, in about %s; ", human.Bytes(r.WriteBytes), human.Seconds(r.Seconds))
}

// keeps is the part about DRAM.
func (r *Restart) keeps(disk bool) string {
	of := human.Bytes(r.DRAMBytes)
	switch {
	case r.DRAMKept:
		return "its keeper keeps the " + of + " of DRAM"
	case disk:
		return "the " + of + " of DRAM come from disk again: with cpu.keep and a keeper they would stay"
	}
	return "the " + of + " of DRAM are lost: with cpu.keep and a keeper they would stay"
}
