package manifest

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"os"
	"slices"

	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/key"
)

// Left is what a process has left in a manifest. Nothing writes it any more.
type Left struct {
	mem   []byte
	arena int64
	order []written // of the entries, as they were written
	fills []uint32
	torn  int
}

// written is the record of an id.
type written struct {
	number uint64
	id     uint32
}

// Open reads the manifest of an arena of so many bytes, which bound the reading. The error
// is ErrDamaged, ErrVersion or ErrArena with the reason, or that of the system. The file
// stays the caller's.
func Open(f *os.File, arenaBytes int64) (*Left, error) {
	mem, err := mapLeft(f)
	if err != nil {
		return nil, fmt.Errorf("manifest: %w", err)
	}
	l := &Left{mem: mem, arena: arenaBytes}
	if err := l.read(); err != nil {
		_ = l.Close()
		return nil, err
	}
	return l, nil
}

// Void makes a manifest one that no process goes on from: its arena has another one, or changes without. f is
// its file; a Left that is open already stays as it is.
func Void(f *os.File) error {
	if _, err := f.WriteAt(make([]byte, len(magic)), 0); err != nil {
		return fmt.Errorf("manifest: void: %w", err)
	}
	return nil
}

// Close gives the mapping back.
func (l *Left) Close() error { return unmap(l.mem) }

func (l *Left) read() error {
	le := binary.LittleEndian
	if len(l.mem) < headerBytes || string(l.mem[:len(magic)]) != magic {
		return fmt.Errorf("%w: %d bytes that do not begin as a manifest does", ErrDamaged, len(l.mem))
	}
	if v := le.Uint32(l.mem[8:]); v != Version {
		return fmt.Errorf("%w: %d, and this program knows %d", ErrVersion, v, Version)
	}
	if n := le.Uint64(l.mem[16:]); n != uint64(l.arena) {
		return fmt.Errorf("%w: it has %d bytes, and cpu.capacity is %d", ErrArena, n, l.arena)
	}
	used := int64(le.Uint32(l.mem[usedAt:]))
	if le.Uint32(l.mem[12:]) != RecordBytes || used > l.arena/arena.AlignBytes || headerBytes+(used+1)*RecordBytes > int64(len(l.mem)) {
		return fmt.Errorf("%w: %d bytes, for %d records and an arena of %d bytes", ErrDamaged, len(l.mem), used, l.arena)
	}
	for id := uint32(1); int64(id) <= used; id++ {
		l.look(id)
	}
	slices.SortFunc(l.order, func(a, b written) int { return cmp.Compare(a.number, b.number) })
	return nil
}

// look sorts one record in.
func (l *Left) look(id uint32) {
	p := l.record(id)
	le := binary.LittleEndian
	sum := le.Uint64(p[checkAt:])
	if sum == 0 {
		return
	}
	off, n := l.at(p)
	if sum != sumOf(p) || n <= 0 || n > arena.MaxPayload || off > l.arena-n {
		l.torn++
		return
	}
	switch le.Uint64(p[80:]) {
	case fill:
		l.fills = append(l.fills, id)
	case entry:
		l.order = append(l.order, written{le.Uint64(p[64:]), id})
	default:
		l.torn++
	}
}

func (l *Left) record(id uint32) []byte {
	at := headerBytes + int64(id)*RecordBytes
	return l.mem[at : at+RecordBytes]
}

func (l *Left) at(p []byte) (off, n int64) {
	le := binary.LittleEndian
	return int64(le.Uint32(p[72:])) * arena.AlignBytes, int64(le.Uint32(p[76:]))
}

// Len is the number of entries.
func (l *Left) Len() int { return len(l.order) }

// Torn is how many records were damaged, and are not among the entries.
func (l *Left) Torn() int { return l.torn }

// Record returns entry i, in the order in which they were written. Its payload lies within
// the arena; two entries may be of one chunk, or overlap, where a block was being moved.
func (l *Left) Record(i int) (r Record) {
	p := l.record(l.order[i].id)
	le := binary.LittleEndian
	r.Key = key.Key{Hash: key.Hash(p[:16]), Space: key.SpaceID(p[16:32])}
	r.Parent = key.Hash(p[32:48])
	r.Sum, r.Word = le.Uint64(p[48:]), le.Uint64(p[56:])
	off, n := l.at(p)
	r.Offset, r.Size = off, uint32(n)
	return r
}

// Fills visits the parts of the arena that another process was writing, and may still be.
func (l *Left) Fills(visit func(off int64, size uint32)) {
	for _, id := range l.fills {
		off, n := l.at(l.record(id))
		visit(off, uint32(n))
	}
}
