package cpu

import (
	"math"

	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/tier"
)

// watermarks are shares of the populated part of the arena.
type watermarks struct{ high, low float64 }

// high is the high watermark in bytes.
func (t *Tier) high() int64 { return int64(t.marks.Load().high * float64(t.arena.Populated())) }

// goal is the used bytes at which evictions end: the low watermark. A policy
// that plans compares each new chunk with the one that would go for it, so that
// none is evicted ahead of time, below the high watermark.
func (t *Tier) goal() int64 {
	if t.ledger.Plans() {
		return t.high()
	}
	return int64(t.marks.Load().low * float64(t.arena.Populated()))
}

// Room implements tier.Bounded.
func (t *Tier) Room(size uint32) int {
	bytes := (t.high() - t.arena.Stats().UsedBytes) / occupied(max(size, 1))
	return int(min(math.MaxInt-1, bytes, int64(ledger.Spare(t.ledger))))
}

// shed hands over one victim of a quota that is exceeded, if there is one.
func shed(t *Tier, drop func(tier.Victim) bool) bool {
	if t.guard.on.Load() {
		return false
	}
	t.handing.RLock()
	defer t.handing.RUnlock()
	e, ok := t.ledger.EvictOver()
	if ok {
		drop(t.victim(e))
	}
	return ok
}
