package directory

import (
	"runtime"
	"sync/atomic"

	"github.com/kvstored/kvstored/key"
)

// Reader is the directory of another process. Its methods may be called concurrently, and
// only while the memory is mapped.
type Reader struct{ table }

// Open reads the directory in mem, which is the caller's to unmap once the Reader is not used
// any more. The error is ErrDamaged or ErrVersion, with the reason.
func Open(mem []byte) (*Reader, error) {
	r := &Reader{table{mem: mem}}
	return r, r.check()
}

// ArenaBytes is the length of the arena that the directory is of.
func (r *Reader) ArenaBytes() int64 { return r.arena }

// Kept reports whether another process may have taken over the arena, without a word here,
// since the one that writes the directory was killed. Only a checksum tells then.
func (r *Reader) Kept() bool { return r.header().at(headKept).Load() != 0 }

// Place is where the payload of a chunk lies, or lay: Holds tells.
type Place struct {
	Offset int64  // in the arena
	Size   uint32 // of the payload in bytes, above 0
	Sum    uint64 // of the payload
	number *atomic.Uint64
	saw    uint64
}

// Find is where k lies. It does not find a slot that is being written, and nothing in a
// directory that holds no more.
func (r *Reader) Find(k key.Key) (p Place, found bool) {
	if r.header().at(headHolds).Load() != 1 {
		return p, false
	}
	c := code(k)
	set := r.set(&c)
	for i := range setSlots {
		s := r.slot(set, i)
		p.number = s.at(wordNumber)
		p.saw = p.number.Load()
		if p.saw&1 != 0 || !s.is(&c) {
			continue
		}
		place := s.at(wordPlace).Load()
		p.Offset, p.Size, p.Sum = int64(place>>32)*AlignBytes, uint32(place), s.at(wordSum).Load()
		if p.number.Load() != p.saw || p.Size == 0 {
			continue
		}
		if p.Offset+int64(p.Size) > r.arena {
			break
		}
		return p, true
	}
	return Place{}, false
}

// Holds reports whether the payload has been where p says since p was found: the bytes
// that were copied from there until now are the payload.
func (r *Reader) Holds(p Place) bool {
	if runtime.GOARCH != "amd64" {
		// The loads of the copy come before those below. amd64 makes loads in the order of the
		// program; arm64 makes all before this addition, which releases, and a load that
		// acquires after it.
		var fence atomic.Uint32
		fence.Add(1)
	}
	return p.number.Load() == p.saw && r.header().at(headHolds).Load() == 1
}
