package arena

import (
	"errors"
	"fmt"
	"math"
	"sync/atomic"

	"github.com/kvstored/kvstored/internal/base"
)

// Block is a handle to payload bytes in an arena; copy it freely. The zero
// Block is invalid. Handles of the same block are equal.
//
// Using a handle after its memory was freed is a broken invariant (see base.Broken),
// also when the id names another block by now. Such a handle has no bytes and is never
// sealed.
type Block struct {
	a   *Arena
	id  uint32
	gen uint32 // of the state, when the handle was made
}

// state is what the arena keeps of a block. It holds no pointer, so a million
// blocks cost the garbage collector nothing.
type state struct {
	off   int64 // off and n change only while there is no reference
	sum   atomic.Uint64
	n     int32
	refs  atomic.Int32
	gen   atomic.Uint32 // counts the frees of this id
	flags atomic.Uint32 // sealed, doubtful, and the tag in the bits above them
}

const (
	sealed   = 1 << iota
	doubtful // the payload may not sum to sum; see Arena.Place
	tagShift = iota
)

// MaxTag is the largest tag of a block.
const MaxTag = 1<<(32-tagShift) - 1

var errSealed = errors.New("arena: the block is sealed")

const statesPerPage = 4096

type statePage [statesPerPage]state

func (a *Arena) state(id uint32) *state {
	if int(id/statesPerPage) < len(a.states) {
		if p := a.states[id/statesPerPage].Load(); p != nil {
			return &p[id%statesPerPage]
		}
	}
	base.Broken("arena: there is no block %d", id)
	return lost()
}

// lost is the state of a block that is none any more: what is done to it is of no effect.
func lost() *state {
	s := new(state)
	s.refs.Store(math.MaxInt32 / 2)
	return s
}

// live returns the state of b.
func (b Block) live() *state {
	s := b.a.state(b.id)
	if s.gen.Load() != b.gen {
		base.Broken("arena: block %d was used after its last release", b.id)
		return lost()
	}
	return s
}

// Valid reports whether b is a handle at all. It does not tell whether the
// block is still held: that is the holder's to know.
func (b Block) Valid() bool { return b.a != nil }

// ID is a number to store instead of the handle; Arena.Block turns it back.
// Ids are above 0, dense, and used again after a free.
func (b Block) ID() uint32 { return b.id }

// Len is the size of the payload in bytes.
func (b Block) Len() int { return int(b.live().n) }

// Offset is where the payload starts in the arena, a multiple of AlignBytes.
func (b Block) Offset() int64 { return b.live().off }

// Bytes is the payload where it lies. The caller holds a reference as long as
// it uses the slice, and writes it only before the block is sealed.
func (b Block) Bytes() []byte {
	s := b.live()
	end := s.off + int64(s.n)
	return b.a.mapping.mem[s.off:end:end]
}

// Padded is Bytes up to the next multiple of AlignBytes, as direct I/O wants
// it. The padding is zero when Alloc returns; a direct read may overwrite it.
func (b Block) Padded() []byte {
	s := b.live()
	end := s.off + padded(s.n)
	return b.a.mapping.mem[s.off:end:end]
}

func padded(n int32) int64 { return RoundUp(int64(n)) }

// Retain takes one more reference, owned by the caller, and returns b. The
// caller must hold one already.
func (b Block) Retain() Block {
	if s := b.live(); s.refs.Add(1) <= 1 {
		base.Broken("arena: block %d was retained after its last release", b.id)
		b.a.putAside(s)
	}
	return b
}

// Release gives one reference back. The last one frees the memory at once.
func (b Block) Release() {
	s := b.live()
	switch refs := s.refs.Add(-1); {
	case refs > 0:
	case refs == 0:
		off, n := s.off, int64(s.n)
		s.gen.Add(1)
		b.a.free(b.id, off, n)
	default:
		base.Broken("arena: block %d was released too often", b.id)
		b.a.putAside(s)
	}
}

// Refs is the number of references now. It is for tests and statistics.
func (b Block) Refs() int32 { return b.live().refs.Load() }

// Write copies src, as long as the block, into it and returns the checksum of
// what arrived, without sealing. It hashes what it stores: src may be memory
// that another process is changing. A block of another length, or a sealed one, stays as
// it is.
func (b Block) Write(src []byte) uint64 {
	dst := b.Bytes()
	if b.Sealed() || len(src) != len(dst) {
		base.Broken("arena: write of %d bytes into block %d of %d bytes (sealed: %t)", len(src), b.id, len(dst), b.Sealed())
		return Checksum(src)
	}
	return CopySum(dst, src)
}

// WriteFrom is Write of what the client has put into the window at off, of which
// the pages were looked for already as far as l says. After an error the block
// holds anything, and is not to be sealed.
func (b Block) WriteFrom(w *Window, off int64, l Look) (sum uint64, err error) {
	dst := b.Bytes()
	if b.Sealed() {
		base.Broken("arena: write into block %d, which is sealed", b.id)
		return 0, errSealed
	}
	if sum, err = w.read(dst, off, l); err != nil {
		return 0, fmt.Errorf("arena: read %d bytes of a window at %d: %w", len(dst), off, err)
	}
	return sum, nil
}

// Seal makes the block immutable and returns the checksum of its payload,
// which it computes.
func (b Block) Seal() uint64 {
	sum := Checksum(b.Bytes())
	b.SealSum(sum)
	return sum
}

// SealSum makes the block immutable with a checksum the caller has just got
// from Write, or verified. Sealing twice is a broken invariant; the first sum stays.
func (b Block) SealSum(sum uint64) {
	s := b.live()
	if s.isSealed() {
		base.Broken("arena: block %d was sealed twice", b.id)
		return
	}
	s.sum.Store(sum)
	s.flags.Or(sealed)
}

func (s *state) isSealed() bool { return s.flags.Load()&sealed != 0 }

// SetTag keeps a number of the owner's, MaxTag at most, with the block, for
// Compact to hand back. The caller holds a reference, and is the only one to
// set it now.
func (b Block) SetTag(tag uint32) {
	s := b.live()
	if tag > MaxTag {
		base.Broken("arena: tag %d of block %d is above %d", tag, b.id, uint32(MaxTag))
		return
	}
	for {
		old := s.flags.Load()
		if s.flags.CompareAndSwap(old, old&(sealed|doubtful)|tag<<tagShift) {
			return
		}
	}
}

// Tag is what SetTag was called with, 0 before.
func (b Block) Tag() uint32 { return b.live().flags.Load() >> tagShift }

// Sealed reports whether the block is immutable.
func (b Block) Sealed() bool { return b.live().isSealed() }

// Sum is the checksum the block was sealed with, 0 before.
func (b Block) Sum() uint64 { return b.live().sum.Load() }

// Clear reports whether the payload is the sealed one. It hashes that of a block of Place,
// until it has been true once.
func (b Block) Clear() bool {
	if flags := b.live().flags.Load(); flags&doubtful == 0 {
		return flags&sealed != 0
	}
	if !b.Verify() {
		return false
	}
	b.live().flags.And(^uint32(doubtful))
	return true
}

// Verify hashes the payload again and reports whether it is the sealed one.
func (b Block) Verify() bool {
	return b.Sealed() && Checksum(b.Bytes()) == b.Sum()
}

// Checksum is XXH3-64 of p, the checksum of every payload: against bit rot and
// torn transfers, not against an attacker.
func Checksum(p []byte) uint64 { return Sum(p) }
