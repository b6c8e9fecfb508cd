package explain

import (
	"maps"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kvstored/kvstored/internal/base"
	"github.com/kvstored/kvstored/key"
)

const (
	// maxTiers is how many tiers there may be.
	maxTiers = 4
	// DefaultEntries is how many chunks a log remembers: 6 MiB.
	DefaultEntries = 256 << 10

	markShift = 16 // marks count 64 KiB
)

// Note says why a chunk left.
type Note struct {
	Reason Reason
	Tier   uint8  // that it left, or that declined it
	Detail uint8  // the caller's: of an evicted chunk its policy, of a declined one why
	At     uint32 // seconds since 1970
	mark   uint32
}

// EvictLog is the chunks that have left a store. It is safe for concurrent use.
type EvictLog struct {
	notes   *base.Table[key.Key, Note]
	evicted [maxTiers]atomic.Uint64 // bytes
}

// NewEvictLog makes a log of at most so many chunks, rounded up to whole buckets.
func NewEvictLog(entries int) *EvictLog {
	return &EvictLog{notes: base.NewTable[key.Key, Note](entries)}
}

// Add notes that a chunk is gone, or that a tier did not take it, and others may have.
func (l *EvictLog) Add(k key.Key, n Note) { l.note(k, n, func(Note) bool { return false }) }

// Evict notes that tier has evicted a chunk that no tier has any more. Where keeps is
// set and another tier has declined the chunk, that stays why it is not there.
func (l *EvictLog) Evict(k key.Key, tier, policy uint8, keeps bool) {
	l.note(k, Note{Reason: Evicted, Tier: tier, Detail: policy}, func(had Note) bool {
		return keeps && had.Reason == Declined && had.Tier != tier
	})
}

// DeclineNew notes that a tier did not take a chunk, if nothing is known of it.
func (l *EvictLog) DeclineNew(k key.Key, tier, why uint8) {
	l.note(k, Note{Reason: Declined, Tier: tier, Detail: why}, func(had Note) bool { return had.Reason != Nothing })
}

// note writes n at k, stamped with the present. Where keep says so of the note that k
// has, that note's reason stays, and only the time is new.
func (l *EvictLog) note(k key.Key, n Note, keep func(had Note) bool) {
	n.At, n.mark = uint32(time.Now().Unix()), uint32(l.evicted[n.Tier%maxTiers].Load()>>markShift)
	l.notes.Change(k, func(had Note) (Note, bool) {
		if keep(had) {
			had.At = n.At
			return had, true
		}
		return n, true
	})
}

// Taken notes that a tier has taken a chunk: that one declined it before is no longer
// why it may be missing one day.
func (l *EvictLog) Taken(k key.Key) {
	l.notes.Change(k, func(had Note) (Note, bool) { return had, had.Reason != Declined && had.Reason != Nothing })
}

// Find is the note of a chunk; its Reason is Nothing where there is none.
func (l *EvictLog) Find(k key.Key) Note { return l.notes.Find(k) }

// Leaving counts bytes that a tier has evicted, whether or not another has them.
func (l *EvictLog) Leaving(tier uint8, bytes uint64) {
	l.evicted[tier%maxTiers].Add(bytes)
}

// Since is how many bytes the tier of a note has evicted since, to 64 KiB. With an
// order by last use, that much more room in the tier would have kept the chunk.
func (l *EvictLog) Since(n Note) uint64 {
	now := uint32(l.evicted[n.Tier%maxTiers].Load() >> markShift)
	return uint64(now-n.mark) << markShift
}

// HalfLife is the time after which a request counts half.
const HalfLife = 10 * time.Minute

// hotEntries is how many ends of prompts a table remembers: 1.75 MiB.
const hotEntries = 32 << 10

// End is what a table has of one end of a prompt.
type End struct {
	Key  key.Key // of its last chunk
	Heat float64 // requests, each counting half after HalfLife
	Last time.Time
}

// HotPrefixes is the ends of prompts that were noted lately. It is safe for concurrent use.
type HotPrefixes struct {
	begun time.Time
	ends  *base.Table[key.Key, hotEntry]
}

type hotEntry struct {
	key   key.Key
	score float32
	last  uint32 // seconds since begun
}

// NewHotPrefixes returns an empty table.
func NewHotPrefixes() *HotPrefixes {
	return &HotPrefixes{begun: time.Now(), ends: base.NewTable[key.Key, hotEntry](hotEntries)}
}

// Asked notes a request that found a prompt up to a chunk.
func (t *HotPrefixes) Asked(k key.Key) { t.note(k, 1) }

// Stored notes that a prompt was stored up to a chunk, which makes it young and not hot.
func (t *HotPrefixes) Stored(k key.Key) { t.note(k, 0) }

func (t *HotPrefixes) note(k key.Key, uses float32) {
	now := uint32(time.Since(t.begun) / time.Second)
	t.ends.Change(k, func(had hotEntry) (hotEntry, bool) {
		at := max(now, had.last) // another may have come first
		return hotEntry{k, faded(had.score, at-had.last) + uses, at}, true
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
func (t *HotPrefixes) Ends() (ends []End) {
	now := uint32(time.Since(t.begun) / time.Second)
	t.ends.Each(func(e hotEntry) {
		ends = append(ends, End{e.key, float64(faded(e.score, now-min(now, e.last))), t.begun.Add(time.Duration(e.last) * time.Second)})
	})
	return ends
}

const (
	minutes    = 60
	mostSpaces = 16 // of a minute and a tier
)

// Others are the spaces that have no count of their own, or none: chunks can go while
// none come.
var Others key.SpaceID

// Rivalry is two spaces.
type Rivalry struct{ By, Of key.SpaceID }

// counts are by space.
type counts map[key.SpaceID]uint64

// add counts n more of a space.
func (c *counts) add(id key.SpaceID, n uint64) {
	if *c == nil {
		*c = make(counts)
	}
	if _, known := (*c)[id]; !known && len(*c) >= mostSpaces {
		id = Others
	}
	(*c)[id] += n
}

// minute counts arrivals and departures.
type minute struct {
	at         int64 // since 1970
	came, gone [maxTiers]counts
}

// Rivals is the last hour. It is safe for concurrent use.
type Rivals struct {
	mu   sync.Mutex
	ring [minutes]minute
}

// now is the present minute; called with the mutex held.
func (t *Rivals) now() *minute {
	at := time.Now().Unix() / 60
	m := &t.ring[at%minutes]
	if m.at != at {
		*m = minute{at: at}
	}
	return m
}

// Came counts bytes of a space that a tier has come to have.
func (t *Rivals) Came(tier uint8, id key.SpaceID, bytes uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.now().came[tier%maxTiers].add(id, bytes)
}

// Gone counts a chunk of a space that was evicted from a tier, the last to have it.
func (t *Rivals) Gone(tier uint8, id key.SpaceID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.now().gone[tier%maxTiers].add(id, 1)
}

// Pairs is how many chunks of each space went for each, in the last hour.
func (t *Rivals) Pairs() map[Rivalry]float64 {
	out := make(map[Rivalry]float64)
	t.mu.Lock()
	now := t.now()
	oldest, ring := now.at-minutes, t.ring
	m := &ring[now.at%minutes] // only its counts change yet
	for tier := range m.gone {
		m.came[tier], m.gone[tier] = maps.Clone(m.came[tier]), maps.Clone(m.gone[tier])
	}
	t.mu.Unlock()
	for i := range ring {
		if m := &ring[i]; m.at > oldest {
			for tier := range m.gone {
				share(out, m.gone[tier], m.came[tier])
			}
		}
	}
	return out
}

// share adds what went to those that came.
func share(out map[Rivalry]float64, gone, came counts) {
	sum := uint64(0)
	for _, n := range came {
		sum += n
	}
	for of, n := range gone {
		if sum == 0 {
			out[Rivalry{Others, of}] += float64(n)
		}
		for by, bytes := range came {
			out[Rivalry{by, of}] += float64(n) * float64(bytes) / float64(max(sum, 1))
		}
	}
}
