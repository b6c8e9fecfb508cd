package explain

import (
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

// Note says why a chunk departed.
type Note struct {
	Reason Reason
	Tier   uint8  // that it left, or that declined it
	Detail uint8  // the caller's: of an evicted chunk its policy, of a declined one why
	At     uint32 // seconds since 1970
	mark   uint32
}

// Departed is the departed chunks of a store. It is safe for concurrent use.
type Departed struct {
	notes   *base.Table[key.Key, Note]
	evicted [maxTiers]atomic.Uint64 // bytes
}

// NewDeparted makes a log of at most so many chunks, rounded up to whole buckets.
func NewDeparted(entries int) *Departed {
	return &Departed{notes: base.NewTable[key.Key, Note](entries)}
}

// Add notes that a chunk is gone, or that a tier did not take it, and others may have.
func (l *Departed) Add(k key.Key, n Note) { l.note(k, n, func(Note) bool { return false }) }

// Evict notes that tier has evicted a chunk that no tier has any more. Where keeps is
// set and another tier has declined the chunk, that stays why it is not there.
func (l *Departed) Evict(k key.Key, tier, policy uint8, keeps bool) {
	l.note(k, Note{Reason: Evicted, Tier: tier, Detail: policy}, func(had Note) bool {
		return keeps && had.Reason == Declined && had.Tier != tier
	})
}

// DeclineNew notes that a tier did not take a chunk, if nothing is known of it.
func (l *Departed) DeclineNew(k key.Key, tier, why uint8) {
	l.note(k, Note{Reason: Declined, Tier: tier, Detail: why}, func(had Note) bool { return had.Reason != Nothing })
}

// note writes n at k, stamped with the present. Where keep says so of the note that k
// has, that note's reason stays, and only the time is new.
func (l *Departed) note(k key.Key, n Note, keep func(had Note) bool) {
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
func (l *Departed) Taken(k key.Key) {
	l.notes.Change(k, func(had Note) (Note, bool) { return had, had.Reason != Declined && had.Reason != Nothing })
}

// Find is the note of a chunk; its Reason is Nothing where there is none.
func (l *Departed) Find(k key.Key) Note { return l.notes.Find(k) }

// Leaving counts bytes that a tier has evicted, whether or not another has them.
func (l *Departed) Leaving(tier uint8, bytes uint64) {
	l.evicted[tier%maxTiers].Add(bytes)
}

// Since is how many bytes the tier of a note has evicted since, to 64 KiB. With an
// order by last use, that much more room in the tier would have kept the chunk.
func (l *Departed) Since(n Note) uint64 {
	now := uint32(l.evicted[n.Tier%maxTiers].Load() >> markShift)
	return uint64(now-n.mark) << markShift
}
