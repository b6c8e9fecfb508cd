package key

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"math/rand/v2"
)

// distinct finds a hash that a chain holds twice. It is an open-addressing
// table that is at most half full and, unless it is long, used again for every
// chain.
type distinct struct {
	seed  [2]uint64
	slots []uint32 // position in the chain + 1; 0 is free
}

// maxSlots is how long a table may be to be used again: that of 16,384 chunks.
const maxSlots = 32 << 10

func newDistinct() *distinct { return &distinct{seed: [2]uint64{rand.Uint64(), rand.Uint64()}} }

// place mixes all 16 bytes with a secret, because engines choose their hashes:
// consecutive numbers padded with zeros are common. Two folded multiplications,
// as in wyhash, cost a third of hash/maphash; one alone would leave such
// numbers in clusters under a secret that ends in zero bits.
func (d *distinct) place(h *Hash) uint64 {
	hi, lo := bits.Mul64(binary.LittleEndian.Uint64(h[:8])^d.seed[0], binary.LittleEndian.Uint64(h[8:])^d.seed[1])
	hi, lo = bits.Mul64(hi^lo, golden)
	return hi ^ lo
}

const golden = 0x9e3779b97f4a7c15 // 2^64 divided by the golden ratio, odd

// check returns an error if hs holds the zero hash or any hash twice.
func (d *distinct) check(hs []Hash) error {
	if len(hs) == 0 {
		return nil
	}
	size := 1 << bits.Len(uint(2*len(hs)-1))
	slots := d.table(size)
	clear(slots)
	mask := uint64(size - 1)
	for i := range hs {
		h := &hs[i]
		if *h == (Hash{}) {
			return fmt.Errorf("%w: the hash of chunk %d is all zero, which stands for the root: send another", ErrChain, i)
		}
		at := d.place(h) & mask
		for slots[at] != 0 {
			if first := slots[at] - 1; hs[first] == *h {
				return fmt.Errorf("%w: chunks %d and %d have the same hash %x: hash each chunk with all before it", ErrChain, first, i, *h)
			}
			at = (at + 1) & mask
		}
		slots[at] = uint32(i + 1)
	}
	return nil
}

// table is room for size slots.
func (d *distinct) table(size int) []uint32 {
	switch {
	case size > maxSlots:
		return make([]uint32, size)
	case size > len(d.slots):
		d.slots = make([]uint32, size)
	}
	return d.slots[:size]
}
