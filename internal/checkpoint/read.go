package checkpoint

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/zeebo/xxh3"

	"github.com/kvstored/kvstored/key"
)

// File is a checkpoint that was checked.
type File struct {
	head                            header
	records, spaces, voids, learned []byte
}

// Open checks a checkpoint and returns it. The File keeps data, which must not change
// from then on. The error is ErrDamaged or ErrVersion, with the reason.
func Open(data []byte) (*File, error) {
	if len(data) < headerBytes {
		return nil, fmt.Errorf("%w: %d bytes, fewer than a header has", ErrDamaged, len(data))
	}
	le := binary.LittleEndian
	if string(data[:len(magic)]) != magic {
		return nil, fmt.Errorf("%w: it does not begin as a checkpoint does", ErrDamaged)
	}
	if v := le.Uint32(data[8:]); v != Version {
		return nil, fmt.Errorf("%w: %d, and this program knows %d", ErrVersion, v, Version)
	}
	f := &File{head: header{
		arenaBytes: le.Uint64(data[16:]), records: le.Uint64(data[24:]), spaces: le.Uint64(data[32:]),
		voids: le.Uint64(data[40:]), learned: le.Uint64(data[48:]),
		policy: string(bytes.TrimRight(data[policyAt:policyAt+policyBytes], "\x00")),
	}}
	if n, ok := f.head.bytes(); !ok || n != uint64(len(data)) || le.Uint32(data[12:]) != RecordBytes {
		return nil, fmt.Errorf("%w: %d bytes, and its header says %d", ErrDamaged, len(data), n)
	}
	if fold(data[:sumAt], xxh3.Hash(data[headerBytes:])) != le.Uint64(data[sumAt:]) {
		return nil, fmt.Errorf("%w: it does not have its checksum", ErrDamaged)
	}
	rest := data[headerBytes:]
	for _, part := range []struct {
		to *[]byte
		n  uint64
	}{{&f.records, f.head.records * RecordBytes}, {&f.spaces, f.head.spaces * spaceBytes}, {&f.voids, f.head.voids * voidBytes}, {&f.learned, f.head.learned}} {
		*part.to, rest = rest[:part.n:part.n], rest[part.n:]
	}
	return f, f.check()
}

// check refuses a file that has its checksum and makes no sense: records outside of the
// arena.
func (f *File) check() error {
	for i := range f.Len() {
		p := f.records[i*RecordBytes:]
		if n := binary.LittleEndian.Uint32(p[56:]); uint64(n) >= f.head.spaces {
			return fmt.Errorf("%w: entry %d is of space %d of %d", ErrDamaged, i, n, f.head.spaces)
		}
		if r := f.Record(i); !f.within(r.Offset, int64(r.Size)) {
			return fmt.Errorf("%w: entry %d lies at %d, +%d, outside of the arena", ErrDamaged, i, r.Offset, r.Size)
		}
	}
	for _, v := range f.Voids() {
		if v.Offset%unitBytes != 0 || !f.within(v.Offset, v.Bytes) {
			return fmt.Errorf("%w: a void at %d, +%d, outside of the arena", ErrDamaged, v.Offset, v.Bytes)
		}
	}
	return nil
}

func (f *File) within(off, n int64) bool {
	arena := f.ArenaBytes()
	return off >= 0 && n > 0 && n <= arena && off <= arena-n
}

// Len is the number of entries.
func (f *File) Len() int { return int(f.head.records) }

// ArenaBytes is how large the arena is.
func (f *File) ArenaBytes() int64 { return int64(f.head.arenaBytes) }

// Policy is the name of the policy whose order the entries have.
func (f *File) Policy() string { return f.head.policy }

// Learned is what that policy had learned; empty if it does not learn.
func (f *File) Learned() []byte { return f.learned }

// Record returns entry i, counted in the order in which the entries would go.
func (f *File) Record(i int) (r Record) {
	p := f.records[i*RecordBytes : (i+1)*RecordBytes]
	le := binary.LittleEndian
	space := le.Uint32(p[56:])
	r.Key = key.Key{Space: key.SpaceID(f.spaces[space*spaceBytes:][:spaceBytes]), Hash: key.Hash(p[:16])}
	r.Parent = key.Hash(p[16:32])
	r.Sum, r.Word = le.Uint64(p[32:]), le.Uint64(p[40:])
	r.Offset, r.Size = int64(le.Uint32(p[48:]))*unitBytes, le.Uint32(p[52:])
	r.Hits, r.Below, r.Dirty = p[60], p[61], p[62]&flagDirty != 0
	return r
}

// Voids are the parts of the arena that are not to be used.
func (f *File) Voids() (vs []Void) {
	for p := f.voids; len(p) > 0; p = p[voidBytes:] {
		vs = append(vs, Void{int64(binary.LittleEndian.Uint64(p)), int64(binary.LittleEndian.Uint64(p[8:]))})
	}
	return vs
}
