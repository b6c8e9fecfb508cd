package directory

import (
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

// Place is where the payload of a chunk lies, or lay: Holds tells.
type Place struct {
	Offset int64  // in the arena
	Size   uint32 // of the payload in bytes, above 0
	Sum    uint64 // of the payload
	number *atomic.Uint64
	saw    uint64
}

// Find is where k lies. It does not find what is being changed at this moment, nor anything
// in a directory that holds no more.
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
		return p, p.Offset+int64(p.Size) <= r.arena
	}
	return Place{}, false
}

// Holds reports whether the payload has been where p says since p was found: what was
// copied from there until now is the payload. The processor has to make loads in the order of
// the program, as amd64 does; elsewhere only the checksum tells.
func (r *Reader) Holds(p Place) bool {
	return p.number.Load() == p.saw && r.header().at(headHolds).Load() == 1
}
