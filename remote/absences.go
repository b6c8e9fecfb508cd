package remote

import (
	"hash/maphash"
	"sync"
	"time"

	"github.com/kvstored/kvstored/key"
)

const (
	// absenceAge is how long a key counts as absent after the store said so:
	// what another machine stores meanwhile is not found before.
	absenceAge = 10 * time.Second
	// absenceSlots bounds the table; 16 bytes each.
	absenceSlots = 1 << 16
	// absenceWays is how many slots a key can be in.
	absenceWays = 4
)

// absences is a bounded table of keys that were not there a moment ago. It
// forgets the oldest of a set first, and never more than is harmless: a
// request is then made that could have been saved. Two keys whose 64-bit
// hashes are equal are taken for one; the hash is seeded per process.
type absences struct {
	seed  maphash.Seed
	start time.Time

	mu struct {
		sync.Mutex
		slots []absence
	}
}

type absence struct {
	tag   uint64
	until time.Duration // since start; 0 = free
}

func newAbsences() *absences {
	a := &absences{seed: maphash.MakeSeed(), start: time.Now()}
	a.mu.slots = make([]absence, absenceSlots)
	return a
}

// set is where k can be; called with the mutex held.
func (a *absences) set(tag uint64) []absence {
	i := tag % (absenceSlots / absenceWays) * absenceWays
	return a.mu.slots[i : i+absenceWays]
}

// add notes that k is absent now.
func (a *absences) add(k key.Key) {
	tag, until := maphash.Comparable(a.seed, k), time.Since(a.start)+absenceAge
	a.mu.Lock()
	defer a.mu.Unlock()
	set := a.set(tag)
	oldest := &set[0]
	for i := range set {
		if set[i].tag == tag {
			set[i].until = until
			return
		}
		if set[i].until < oldest.until {
			oldest = &set[i]
		}
	}
	*oldest = absence{tag, until}
}

// remove notes that k is there.
func (a *absences) remove(k key.Key) {
	tag := maphash.Comparable(a.seed, k)
	a.mu.Lock()
	defer a.mu.Unlock()
	for i, s := range a.set(tag) {
		if s.tag == tag {
			a.set(tag)[i] = absence{}
		}
	}
}

// has reports whether k was absent less than absenceAge ago.
func (a *absences) has(k key.Key) bool {
	tag, now := maphash.Comparable(a.seed, k), time.Since(a.start)
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, s := range a.set(tag) {
		if s.tag == tag {
			return now < s.until
		}
	}
	return false
}
