package explain

import (
	"math"
	"time"

	"github.com/kvstored/kvstored/internal/base"
	"github.com/kvstored/kvstored/key"
)

// HalfLife is the time after which a request counts half.
const HalfLife = 10 * time.Minute

// heatEntries is how many ends of prompts a table remembers: 1.75 MiB.
const heatEntries = 32 << 10

// End is what a table has of one end of a prompt.
type End struct {
	Key  key.Key // of its last chunk
	Heat float64 // requests, each counting half after HalfLife
	Last time.Time
}

// Heat is the ends of prompts that were noted lately. It is safe for concurrent use.
type Heat struct {
	begun time.Time
	ends  *base.Table[key.Key, heatEntry]
}

type heatEntry struct {
	key   key.Key
	score float32
	last  uint32 // seconds since begun
}

// NewHeat returns an empty table.
func NewHeat() *Heat {
	return &Heat{begun: time.Now(), ends: base.NewTable[key.Key, heatEntry](heatEntries)}
}

// Asked notes a request that found a prompt up to a chunk.
func (t *Heat) Asked(k key.Key) { t.note(k, 1) }

// Stored notes that a prompt was stored up to a chunk, which makes it young and not hot.
func (t *Heat) Stored(k key.Key) { t.note(k, 0) }

func (t *Heat) note(k key.Key, uses float32) {
	now := uint32(time.Since(t.begun) / time.Second)
	t.ends.Change(k, func(had heatEntry) (heatEntry, bool) {
		at := max(now, had.last) // another may have come first
		return heatEntry{k, faded(had.score, at-had.last) + uses, at}, true
	})
}

// faded returns a score as it is so many seconds later.
func faded(score float32, seconds uint32) float32 {
	if score == 0 || seconds == 0 {
		return score
	}
	return score * float32(math.Exp2(-float64(seconds)/HalfLife.Seconds()))
}

// Ends lists what the table has, in no order, with scores as they are now.
func (t *Heat) Ends() (ends []End) {
	now := uint32(time.Since(t.begun) / time.Second)
	t.ends.Each(func(e heatEntry) {
		ends = append(ends, End{e.key, float64(faded(e.score, now-min(now, e.last))), t.begun.Add(time.Duration(e.last) * time.Second)})
	})
	return ends
}
