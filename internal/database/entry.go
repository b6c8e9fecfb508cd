package database

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cespare/xxhash/v2"

	"github.com/kvstored/kvstored/key"
)

var (
	// ErrDamaged means that the bytes are not those written: drop the record.
	ErrDamaged = errors.New("damaged record")
	// ErrNewer means that a newer program wrote the record: leave it alone.
	ErrNewer = errors.New("record written by a newer version")
)

// EntryVersion is the layout of an entry. Version 2, of entries without Dies, said whether
// the extent had a header; entries with one are read.
const (
	EntryVersion = 3
	plainVersion = 2
)

// EntryBytes is the size of an encoded entry, without its key.
const EntryBytes = 88

// Entry is all that is known of one payload at rest.
type Entry struct {
	Key    key.Key
	Parent key.Hash // zero for the first chunk of a prompt
	Depth  uint32   // chunks before this one
	Tokens uint32   // tokens in this chunk
	Size   uint32   // payload bytes
	Sum    uint64   // XXH3-64 of the payload
	// Seq orders writes: of two entries that claim the same bytes of a
	// segment the one with the higher Seq wrote last.
	Seq     uint64
	Created uint32 // Unix seconds; of one with Dies when its chunk was stored first, in any tier
	Expires uint32 // Unix seconds at which it expires; 0 = never
	Used    uint32 // Unix seconds of the last known use
	Hits    uint32
	Extent  Extent // zero when Inline
	Inline  bool   // the payload lies under PayloadKey
}

// Extent is where a payload lies, behind its header: Bytes (a multiple of 4 KiB) of
// segment file Segment from Offset on.
type Extent struct {
	Offset  int64
	Segment uint32
	Bytes   uint32
}

// End is the offset behind the extent.
func (e Extent) End() int64 { return e.Offset + int64(e.Bytes) }

const (
	flagInline = 1 << 0
	flagHeaded = 1 << 1 // of version 2
)

// AppendEntry appends e's value to dst. Its key is EntryKey(e.Key).
//
//	0 version u8 · 1 flags u8 · 2 zero u16 · 4 depth u32 · 8 tokens u32 · 12 size u32
//	16 parent [16] · 32 payload checksum u64 · 40 sequence u64
//	48 created u32 · 52 used u32 · 56 hits u32 · 60 segment u32
//	64 offset u64 · 72 extent bytes u32 · 76 dies u32
//	80 xxHash64 over the database key and the 80 bytes before
//
// Integers are little-endian.
func AppendEntry(dst []byte, e *Entry) []byte {
	from := len(dst)
	var flags byte
	if e.Inline {
		flags |= flagInline
	}
	le := binary.LittleEndian
	dst = append(dst, EntryVersion, flags, 0, 0)
	dst = le.AppendUint32(dst, e.Depth)
	dst = le.AppendUint32(dst, e.Tokens)
	dst = le.AppendUint32(dst, e.Size)
	dst = append(dst, e.Parent[:]...)
	dst = le.AppendUint64(dst, e.Sum)
	dst = le.AppendUint64(dst, e.Seq)
	dst = le.AppendUint32(dst, e.Created)
	dst = le.AppendUint32(dst, e.Used)
	dst = le.AppendUint32(dst, e.Hits)
	dst = le.AppendUint32(dst, e.Extent.Segment)
	dst = le.AppendUint64(dst, uint64(e.Extent.Offset))
	dst = le.AppendUint32(dst, e.Extent.Bytes)
	dst = le.AppendUint32(dst, e.Expires)
	k := EntryKey(e.Key)
	return le.AppendUint64(dst, checksum(k[:], dst[from:]))
}

// DecodeEntry reads the value v found under database key k into e. It fails
// with ErrDamaged or ErrNewer; e is undefined then.
func DecodeEntry(e *Entry, k, v []byte) error {
	name, ok := ParseEntryKey(k)
	if !ok {
		return fmt.Errorf("entry key of %d bytes: %w", len(k), ErrDamaged)
	}
	if err := checkValue("entry", EntryVersion, k, v); err != nil {
		return err
	}
	if v[0] < plainVersion || v[0] == plainVersion && v[1]&(flagInline|flagHeaded) == 0 {
		return fmt.Errorf("entry of version %d, whose extent has no header: %w", v[0], ErrDamaged)
	}
	if len(v) != EntryBytes {
		return fmt.Errorf("entry of %d bytes, want %d: %w", len(v), EntryBytes, ErrDamaged)
	}
	le := binary.LittleEndian
	e.Key = name
	e.Inline = v[1]&flagInline != 0
	e.Depth = le.Uint32(v[4:])
	e.Tokens = le.Uint32(v[8:])
	e.Size = le.Uint32(v[12:])
	copy(e.Parent[:], v[16:32])
	e.Sum = le.Uint64(v[32:])
	e.Seq = le.Uint64(v[40:])
	e.Created = le.Uint32(v[48:])
	e.Used = le.Uint32(v[52:])
	e.Hits = le.Uint32(v[56:])
	e.Expires = le.Uint32(v[76:])
	e.Extent = Extent{Segment: le.Uint32(v[60:]), Offset: int64(le.Uint64(v[64:])), Bytes: le.Uint32(v[72:])}
	return nil
}

// checkValue says whether v, found under k, is whole and of a version up to newest.
// A version is believed only when the checksum holds, which every version
// keeps in its last eight bytes.
func checkValue(what string, newest byte, k, v []byte) error {
	body := len(v) - 8
	if body < 1 {
		return fmt.Errorf("%s of %d bytes: %w", what, len(v), ErrDamaged)
	}
	if binary.LittleEndian.Uint64(v[body:]) != checksum(k, v[:body]) {
		return fmt.Errorf("%s: checksum: %w", what, ErrDamaged)
	}
	switch {
	case v[0] > newest:
		return fmt.Errorf("%s of version %d, this program reads up to %d: %w", what, v[0], newest, ErrNewer)
	case v[0] == 0:
		return fmt.Errorf("%s of version 0: %w", what, ErrDamaged)
	}
	return nil
}

// checksum covers the key too, so that a value found under another key fails.
func checksum(k, body []byte) uint64 {
	var d xxhash.Digest
	d.Reset()
	_, _ = d.Write(k)
	_, _ = d.Write(body)
	return d.Sum64()
}
