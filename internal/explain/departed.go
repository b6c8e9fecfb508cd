package explain

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kvstored/kvstored/key"
)

const (
	// maxTiers is how many tiers there may be.
	maxTiers = 4
	// DefaultEntries is how many chunks a log remembers: 6 MiB.
	DefaultEntries = 256 << 10

	bucketSize = 8
	markShift  = 16 // marks count 64 KiB
)

// Note says why a chunk departed.
type Note struct {
	Reason Reason
	Tier   uint8  // that it left, or that declined it
	Detail uint8  // the caller's: of an evicted chunk its policy, of a declined one why
	At     uint32 // seconds since 1970
	mark   uint32
}

type entry struct {
	sum uint64 // of the key; 0: free
	seq uint32 // counts notes; it may wrap
	Note
}

// Departed is the departed chunks of a store. It is safe for concurrent use. A nil Log
// remembers nothing.
type Departed struct {
	seed    maphash.Seed
	buckets uint64
	evicted [maxTiers]atomic.Uint64 // bytes

	mu struct {
		sync.Mutex
		entries []entry
		seq     uint32
	}
}

// NewDeparted makes a log of at most so many chunks, rounded up to whole buckets.
func NewDeparted(entries int) *Departed {
	l := &Departed{seed: maphash.MakeSeed(), buckets: uint64(max(1, (entries+bucketSize-1)/bucketSize))}
	l.mu.entries = make([]entry, l.buckets*bucketSize)
	return l
}

// sum is the keyed hash of k. Keys may be a client's choice, and must not be able to
// meet in one bucket.
func (l *Departed) sum(k *key.Key) uint64 {
	var text [len(k.Space) + len(k.Hash)]byte
	copy(text[:], k.Space[:])
	copy(text[len(k.Space):], k.Hash[:])
	return max(maphash.Bytes(l.seed, text[:]), 1)
}

// bucket is where a chunk may be; called with the mutex held.
func (l *Departed) bucket(sum uint64) []entry {
	at := sum % l.buckets * bucketSize
	return l.mu.entries[at : at+bucketSize]
}

// Add notes that a chunk is gone, or that a tier did not take it, and others may have.
func (l *Departed) Add(k key.Key, n Note) { l.note(&k, n, nil) }

// Evict notes that tier has evicted a chunk that no tier has any more. Where keeps is
// set and another tier has declined the chunk, that stays why it is not there.
func (l *Departed) Evict(k key.Key, tier, policy uint8, keeps bool) {
	l.note(&k, Note{Reason: Evicted, Tier: tier, Detail: policy}, func(had *Note) bool {
		return keeps && had.Reason == Declined && had.Tier != tier
	})
}

// DeclineNew notes that a tier did not take a chunk, if nothing is known of it.
func (l *Departed) DeclineNew(k key.Key, tier, why uint8) {
	l.note(&k, Note{Reason: Declined, Tier: tier, Detail: why}, func(had *Note) bool { return had.Reason != Nothing })
}

// note writes n at k, stamped with the present. Where keep says so of the note that k
// has, that note's reason stays, and only the time is new.
func (l *Departed) note(k *key.Key, n Note, keep func(had *Note) bool) {
	if l == nil {
		return
	}
	sum := l.sum(k)
	n.At, n.mark = uint32(time.Now().Unix()), uint32(l.evicted[n.Tier%maxTiers].Load()>>markShift)
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.place(sum)
	if e.sum == sum && keep != nil && keep(&e.Note) {
		e.At = n.At
		return
	}
	l.mu.seq++
	*e = entry{sum, l.mu.seq, n}
}

// place is the entry of a chunk, or the one that a new chunk takes.
func (l *Departed) place(sum uint64) *entry {
	b := l.bucket(sum)
	oldest := &b[0]
	for i := range b {
		e := &b[i]
		if e.sum == sum {
			return e
		}
		if oldest.sum != 0 && (e.sum == 0 || l.mu.seq-e.seq > l.mu.seq-oldest.seq) {
			oldest = e
		}
	}
	return oldest
}

// Taken notes that a tier has taken a chunk: that one declined it before is no longer
// why it may be missing one day.
func (l *Departed) Taken(k key.Key) {
	if l == nil {
		return
	}
	sum := l.sum(&k)
	l.mu.Lock()
	defer l.mu.Unlock()
	for b, i := l.bucket(sum), 0; i < bucketSize; i++ {
		if b[i].sum == sum && b[i].Reason == Declined {
			b[i] = entry{}
		}
	}
}

// Find is the note of a chunk; its Reason is Nothing where there is none.
func (l *Departed) Find(k key.Key) (n Note) {
	if l == nil {
		return n
	}
	sum := l.sum(&k)
	l.mu.Lock()
	defer l.mu.Unlock()
	for b, i := l.bucket(sum), 0; i < bucketSize; i++ {
		if b[i].sum == sum {
			return b[i].Note
		}
	}
	return n
}

// Leaving counts bytes that a tier has evicted, whether or not another has them.
func (l *Departed) Leaving(tier uint8, bytes uint64) {
	if l != nil {
		l.evicted[tier%maxTiers].Add(bytes)
	}
}

// Since is how many bytes the tier of a note has evicted since, to 64 KiB. With an
// order by last use, that much more room in the tier would have kept the chunk.
func (l *Departed) Since(n Note) uint64 {
	now := uint32(l.evicted[n.Tier%maxTiers].Load() >> markShift)
	return uint64(now-n.mark) << markShift
}
