package base

import (
	"hash/maphash"
	"maps"
	"sync"
)

// ways is how many slots a key of a Table may be in.
const ways = 8

// Table remembers a value for each of at most so many keys. Of a full bucket the key goes that
// was written the longest ago. A Table keeps 64 bits of a keyed hash of each key: clients that
// choose keys cannot have them meet, and two keys of one hash are one. It is safe for
// concurrent use; its mutex is held for one bucket, and over the functions that it is given.
type Table[K comparable, V any] struct {
	seed maphash.Seed
	mu   struct {
		sync.Mutex
		slots []slot[V]
		seq   uint32
	}
}

type slot[V any] struct {
	sum   uint64 // of the key; 0: free
	seq   uint32 // counts writes; it may wrap
	value V
}

// NewTable makes a table of at most so many keys, rounded up to whole buckets.
func NewTable[K comparable, V any](keys int) *Table[K, V] {
	t := &Table[K, V]{seed: maphash.MakeSeed()}
	t.mu.slots = make([]slot[V], max(1, (keys+ways-1)/ways)*ways)
	return t
}

// bucket is where a key with a hash may be; called with the mutex held.
func (t *Table[K, V]) bucket(sum uint64) []slot[V] {
	at := sum % uint64(len(t.mu.slots)/ways) * ways
	return t.mu.slots[at:][:ways]
}

func (t *Table[K, V]) sum(k K) uint64 { return max(maphash.Comparable(t.seed, k), 1) }

// Change writes what do makes of the value of a key, which is zero where there is none. The key
// is forgotten where do does not keep it.
func (t *Table[K, V]) Change(k K, do func(had V) (now V, keep bool)) {
	sum := t.sum(k)
	t.mu.Lock()
	defer t.mu.Unlock()
	b := t.bucket(sum)
	at := &b[0]
	var had V
	for i := range b {
		s := &b[i]
		if s.sum == sum {
			at, had = s, s.value
			break
		}
		if at.sum != 0 && (s.sum == 0 || t.mu.seq-s.seq > t.mu.seq-at.seq) {
			at = s
		}
	}
	switch now, keep := do(had); {
	case keep:
		t.mu.seq++
		*at = slot[V]{sum, t.mu.seq, now}
	case at.sum == sum:
		*at = slot[V]{}
	}
}

// Find is the value of a key, zero where there is none.
func (t *Table[K, V]) Find(k K) (v V) {
	sum := t.sum(k)
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, b := 0, t.bucket(sum); i < len(b); i++ {
		if b[i].sum == sum {
			return b[i].value
		}
	}
	return v
}

// Each calls do for all values, in no order. Others may use the table between two buckets.
func (t *Table[K, V]) Each(do func(V)) {
	for at := 0; at < len(t.mu.slots); at += ways {
		t.each(t.mu.slots[at:][:ways], do)
	}
}

func (t *Table[K, V]) each(bucket []slot[V], do func(V)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range bucket {
		if bucket[i].sum != 0 {
			do(bucket[i].value)
		}
	}
}

// A map that had more than least entries is made anew when it has one part in share of
// them left, and no more than few: copying these takes some 100 us, and the owner of the
// map has its lock meanwhile.
const (
	least = 1 << 10
	share = 8
	few   = 1 << 10
)

// Delete deletes k from *m, and makes the map anew where it has become small.
// That takes as long as the deletions since then took together, at most. peak belongs to
// the map and begins with 0: the most entries that a deletion has found in it. Entries
// leave the map by way of Delete only, and not while it is walked.
func Delete[K comparable, V any](m *map[K]V, k K, peak *int) {
	*peak = max(*peak, len(*m))
	delete(*m, k)
	if *peak <= least || len(*m) > min(*peak/share, few) {
		return
	}
	fewer := make(map[K]V, len(*m))
	maps.Copy(fewer, *m)
	*m, *peak = fewer, len(fewer)
}
