package cpu

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"os"
	"slices"
	"sync/atomic"
	"unsafe"

	"github.com/zeebo/xxh3"
	"golang.org/x/sys/unix"

	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/key"
)

// Left is what the process before has left in a manifest that is written on.
type Left struct {
	of      *Manifest
	arena   int64
	order   []written // of the entries, as they were written
	loose   []uint32
	ids     []uint64 // a bit for each id of either
	torn    int
	Stopped bool   // cleanly: the order is that of Policy, and the records are as of then
	Policy  string // as package policy calls it
	Learned []byte // by that; nil: nothing
	Clients []Slot // of connections that had mapped the arena
}

// written is the record of an id.
type written struct {
	number uint64
	id     uint32
}

// OpenManifest goes on with the manifest of an arena of so many bytes, which bound the reading. It
// takes the file over, but for an error: ErrDamaged, ErrVersion or ErrArena with the reason,
// or that of the system. From then on the file is not that of a clean stop.
func OpenManifest(f *os.File, arenaBytes int64) (*Manifest, *Left, error) {
	mem, err := mapMemory(f)
	if err != nil {
		return nil, nil, fmt.Errorf("manifest: %w", err)
	}
	m := &Manifest{file: f, mem: mem}
	l := &Left{of: m, arena: arenaBytes}
	if err := l.read(); err != nil {
		_ = unix.Munmap(mem)
		return nil, nil, err
	}
	return m, l, nil
}

func (l *Left) read() error {
	le, m := binary.LittleEndian, l.of
	if len(m.mem) < recordsAt || string(m.mem[:len(magic)]) != magic {
		return fmt.Errorf("%w: %d bytes that do not begin as a manifest does", ErrDamaged, len(m.mem))
	}
	if v := le.Uint32(m.mem[8:]); v != ManifestVersion {
		return fmt.Errorf("%w: %d, and this program knows %d", ErrVersion, v, ManifestVersion)
	}
	if le.Uint64(m.mem[headerSum:]) != xxh3.Hash(m.mem[:headerSum]) {
		return fmt.Errorf("%w: its head has another sum", ErrDamaged)
	}
	if n := le.Uint64(m.mem[16:]); n != uint64(l.arena) {
		return fmt.Errorf("%w: it has %d bytes, and cpu.capacity is %d", ErrArena, n, l.arena)
	}
	m.used = (*atomic.Uint32)(unsafe.Pointer(&m.mem[usedAt]))
	used := int64(m.used.Load())
	if le.Uint32(m.mem[12:]) != RecordBytes || used > l.arena/arena.AlignBytes || recordsAt+(used+1)*RecordBytes > int64(len(m.mem)) {
		return fmt.Errorf("%w: %d bytes, for %d records and an arena of %d bytes", ErrDamaged, len(m.mem), used, l.arena)
	}
	l.ids = make([]uint64, used/64+1)
	for id := uint32(1); int64(id) <= used; id++ {
		l.look(id)
	}
	slices.SortFunc(l.order, func(a, b written) int { return cmp.Compare(a.number, b.number) })
	l.readStop()
	l.readClients()
	return nil
}

// look sorts one record in, or clears it.
func (l *Left) look(id uint32) {
	p := l.of.record(id)
	le := binary.LittleEndian
	sum := check(p).Load()
	if sum == 0 {
		return
	}
	off, n := at(p)
	kind := le.Uint32(p[80:])
	if sum != sumOf(p) || n <= 0 || n > arena.MaxPayload || off > l.arena-n || kind != entry && kind != loose {
		l.torn++
		l.of.Clear(id)
		return
	}
	number := le.Uint64(p[64:])
	l.of.last.Store(max(l.of.last.Load(), number))
	l.ids[id/64] |= 1 << (id % 64)
	if kind == loose {
		l.loose = append(l.loose, id)
	} else {
		l.order = append(l.order, written{number, id})
	}
}

// readStop takes the part of a clean stop.
func (l *Left) readStop() {
	mem := l.of.mem
	head, sum := mem[stopAt:stopSum], mem[stopSum:stopSum+8]
	n := binary.LittleEndian.Uint32(head[policyBytes:])
	if n <= learnedMost {
		learned := slices.Clone(mem[learnedAt : learnedAt+n])
		if l.Stopped = binary.LittleEndian.Uint64(sum) == stopSumOf(head, learned); l.Stopped {
			name, _, _ := bytes.Cut(head[:policyBytes], []byte{0})
			l.Policy, l.Learned = string(name), learned
		}
	}
	clear(sum)
}

func at(p []byte) (off, n int64) {
	le := binary.LittleEndian
	return int64(le.Uint32(p[72:])) * arena.AlignBytes, int64(le.Uint32(p[76:]))
}

// Len is the number of entries.
func (l *Left) Len() int { return len(l.order) }

// Torn is how many records were damaged, and are not among the entries.
func (l *Left) Torn() int { return l.torn }

// Largest is the largest id that a block had, and Has whether a block of an id is left.
func (l *Left) Largest() uint32 { return l.of.used.Load() }

// Has reports whether there is a record of an id.
func (l *Left) Has(id uint32) bool { return l.ids[id/64]&(1<<(id%64)) != 0 }

// Record returns entry i, in their order, and the id of its block, which the manifest has
// still. Its payload lies within the arena; two entries may be of one chunk, or overlap,
// where a block was being moved.
func (l *Left) Record(i int) (id uint32, r Record) {
	id = l.order[i].id
	p := l.of.record(id)
	le := binary.LittleEndian
	r.Key = key.Key{Hash: key.Hash(p[:16]), Space: key.SpaceID(p[16:32])}
	r.Parent = key.Hash(p[32:48])
	r.Sum, r.Word = le.Uint64(p[48:]), le.Uint64(p[56:])
	off, n := at(p)
	r.Offset, r.Size = off, uint32(n)
	if l.Stopped {
		r.Hits, r.Below, r.Dirty = p[84], p[85], p[86] != 0
	}
	return id, r
}

// Loose visits the blocks that are in use and no chunk's.
func (l *Left) Loose(visit func(id uint32, off int64, size uint32)) {
	for _, id := range l.loose {
		off, n := at(l.of.record(id))
		visit(id, off, uint32(n))
	}
}
