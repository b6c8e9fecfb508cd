package directory

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"sync/atomic"
	"unsafe"

	"github.com/kvstored/kvstored/key"
)

// Version is that of the format. A client that knows another one uses no directory.
const Version = 1

const (
	magic       = uint64('k') | 'v'<<8 | 's'<<16 | 'P'<<24 | 'L'<<32 | 'A'<<40 | 'C'<<48 | 'E'<<56
	headerBytes = 4096
	slotBytes   = 64
	setSlots    = 8
	setBytes    = setSlots * slotBytes

	// maxArena is as far as a place reaches: 16 TiB.
	maxArena = AlignBytes << 32

	// AlignBytes is the unit of places in the arena.
	AlignBytes = 4096
	// bytesPerSlot is how much of the arena there is for each slot. With chunks of 64 KiB,
	// the smallest that are usual, half of the slots are in use.
	bytesPerSlot = 32 << 10
)

// The words of the header.
const (
	headMagic = iota
	headVersion
	headSlots
	headArena
	headHolds // 1 while the directory holds; a line of its own would not be written more often
	headKept  // 1: the arena may outlive the process, and be another's, without Void
)

// The words of a slot.
const (
	wordNumber = iota
	wordHash
	wordHash2
	wordSpace
	wordSpace2
	wordPlace // of 4 KiB in the upper half, bytes in the lower; 0: none
	wordSum
)

// Bytes is the size of the directory of an arena of so many bytes: about 0.2 % of it. Pages
// of slots that were never used take no memory.
func Bytes(arenaBytes int64) int64 { return headerBytes + int64(slotsFor(arenaBytes))*slotBytes }

func slotsFor(arenaBytes int64) uint64 {
	n := uint64(max(arenaBytes, 1)+bytesPerSlot-1) / bytesPerSlot
	return max(setSlots, uint64(1)<<bits.Len64(n-1))
}

// words is memory as words.
type words struct{ base unsafe.Pointer }

func (w words) at(i int) *atomic.Uint64 { return (*atomic.Uint64)(unsafe.Add(w.base, 8*i)) }

// table is a directory as its writer and its readers have it in common.
type table struct {
	mem   []byte
	sets  uint64
	arena int64
}

func (t *table) header() words { return words{unsafe.Pointer(unsafe.SliceData(t.mem))} }

func (t *table) slot(set uint64, i int) words {
	return words{unsafe.Pointer(&t.mem[headerBytes+int(set)*setBytes+i*slotBytes])}
}

// coded is a key as the words of a slot.
type coded [4]uint64

func code(k key.Key) coded {
	le := binary.LittleEndian
	return coded{le.Uint64(k.Hash[:]), le.Uint64(k.Hash[8:]), le.Uint64(k.Space[:]), le.Uint64(k.Space[8:])}
}

// set is where a key belongs. Engines may hand over hashes that are plain counters, so all
// words are mixed: multiplied by odd numbers from the digits of pi, and folded.
func (t *table) set(c *coded) uint64 {
	h1, l1 := bits.Mul64(c[0]^0x243f6a8885a308d3, c[1]^0x13198a2e03707345)
	h2, l2 := bits.Mul64(c[2]^0xa4093822299f31d1, c[3]^0x082efa98ec4e6c89)
	h3, l3 := bits.Mul64(h1^l2^c[0], h2^l1^c[1]^0x452821e638d01377)
	return (h3 ^ l3) & (t.sets - 1)
}

func (w words) is(c *coded) bool {
	return w.at(wordHash).Load() == c[0] && w.at(wordHash2).Load() == c[1] && w.at(wordSpace).Load() == c[2] && w.at(wordSpace2).Load() == c[3]
}

// ErrDamaged and ErrVersion are the errors of Open, wrapped with the reason.
var (
	ErrDamaged = errors.New("directory: damaged")
	ErrVersion = errors.New("directory: of another version")
)

func (t *table) check() error {
	if len(t.mem) < headerBytes || uintptr(unsafe.Pointer(unsafe.SliceData(t.mem)))%8 != 0 {
		return fmt.Errorf("%w: %d bytes", ErrDamaged, len(t.mem))
	}
	h := t.header()
	if m := h.at(headMagic).Load(); m != magic {
		return fmt.Errorf("%w: it begins with %#x", ErrDamaged, m)
	}
	if v := h.at(headVersion).Load(); v != Version|slotBytes<<32 {
		return fmt.Errorf("%w: version %d with slots of %d bytes; this program knows %d with %d", ErrVersion, uint32(v), v>>32, Version, slotBytes)
	}
	n, a := h.at(headSlots).Load(), h.at(headArena).Load()
	if n < setSlots || n&(n-1) != 0 || n > uint64(len(t.mem)-headerBytes)/slotBytes || a == 0 || a > maxArena {
		return fmt.Errorf("%w: %d slots in %d bytes, for an arena of %d", ErrDamaged, n, len(t.mem), a)
	}
	t.sets, t.arena = n/setSlots, int64(a)
	return nil
}
