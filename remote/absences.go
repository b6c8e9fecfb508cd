package remote

import (
	"hash/maphash"
	"math/bits"
	"sync/atomic"
	"time"

	"github.com/kvstored/kvstored/internal/base"
	"github.com/kvstored/kvstored/key"
)

const (
	// absenceAge is how long a key counts as absent after the store said so:
	// what another machine stores meanwhile is not found before.
	absenceAge = 10 * time.Second
	// mostAbsences bounds the table; 24 bytes each.
	mostAbsences = 1 << 16
)

// absences are keys that were not there a moment ago, and until when, after start, that
// counts. The table never forgets more than is harmless: a request is then made that could have been
// saved.
type absences struct {
	start time.Time
	until *base.Table[key.Key, time.Duration]
}

func newAbsences() *absences {
	return &absences{time.Now(), base.NewTable[key.Key, time.Duration](mostAbsences)}
}

// add notes that k is absent now.
func (a *absences) add(k key.Key) {
	until := time.Since(a.start) + absenceAge
	a.until.Change(k, func(time.Duration) (time.Duration, bool) { return until, true })
}

// remove notes that k is there.
func (a *absences) remove(k key.Key) {
	a.until.Change(k, func(time.Duration) (time.Duration, bool) { return 0, false })
}

// has reports whether k was absent less than absenceAge ago.
func (a *absences) has(k key.Key) bool {
	return time.Since(a.start) < a.until.Find(k)
}

const (
	// bloomBlocks of 64 bytes are 8 MiB: at 10 bits a key, enough for 6.7
	// million with about one in a hundred answers wrong.
	bloomBlocks = 1 << 17
	// bloomProbes is near the optimum of ln 2 times 10 bits a key.
	bloomProbes = 6
)

// bloom is a blocked Bloom filter (Putze, Sanders, Singler, WEA 2007): all bits
// of a key lie in one cache line. It holds keys that were stored by us or listed, and
// is a hint only: others store and delete too. It has no lock.
type bloom struct {
	seed  maphash.Seed
	words []atomic.Uint64
}

func newBloom() *bloom {
	return &bloom{seed: maphash.MakeSeed(), words: make([]atomic.Uint64, bloomBlocks*8)}
}

// masks returns the block of k and which bits of it are k's.
func (b *bloom) masks(k key.Key) (block []atomic.Uint64, m [8]uint64) {
	h := maphash.Comparable(b.seed, k)
	hi, lo := bits.Mul64(h, bloomBlocks) // block from the high bits, the rest from the low
	block = b.words[hi*8 : hi*8+8]
	h = lo * 0x9e3779b97f4a7c15
	for range bloomProbes {
		m[h>>6&7] |= 1 << (h & 63)
		h = bits.RotateLeft64(h, -9)
	}
	return block, m
}

func (b *bloom) add(k key.Key) {
	block, m := b.masks(k)
	for i, bits := range m {
		if bits != 0 {
			block[i].Or(bits)
		}
	}
}

// has is true for added keys, and by chance for others.
func (b *bloom) has(k key.Key) bool {
	block, m := b.masks(k)
	for i, bits := range m {
		if block[i].Load()&bits != bits {
			return false
		}
	}
	return true
}
