package database

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"sync"

	"github.com/kvstored/kvstored/key"
)

// HeaderBytes is the page in front of a payload in its extent. It leaves the
// payload aligned as direct I/O wants it.
const HeaderBytes = 4096

// SecretBytes is the size of the secret that headers are authenticated with.
const SecretBytes = 32

const (
	headerMagic  = "kvstore\x01"
	headerBody   = 128 // before the authentication code
	headerCopy   = headerBody + sha256.Size
	headerSecond = HeaderBytes / 2 // where the other copy begins
)

// Header says what an extent is, beside the payload: enough to make the record
// anew when the database is lost. Written in place of another one it also says
// that the extent is free (Free). Either way nothing that was written into
// [Offset, Offset+Bytes+Void) before it counts any more: the Void bytes behind
// the extent were free when Seq was given.
type Header struct {
	Entry
	Void int64
	Free bool
}

// End is the offset behind all that the header speaks for.
func (h *Header) End() int64 { return h.Extent.End() + h.Void }

// Sealer writes and reads headers of one set of directories, whose secret
// keeps payloads from imitating them. It is safe for concurrent use.
type Sealer struct{ macs sync.Pool }

// NewSealer uses a secret of SecretBytes.
func NewSealer(secret []byte) *Sealer {
	secret = bytes.Clone(secret)
	return &Sealer{sync.Pool{New: func() any { return &mac{Hash: hmac.New(sha256.New, secret)} }}}
}

type mac struct {
	hash.Hash
	sum [sha256.Size]byte
}

func (s *Sealer) sum(body []byte, to *[sha256.Size]byte) {
	m := s.macs.Get().(*mac)
	m.Reset()
	_, _ = m.Write(body) // never fails
	m.Hash.Sum(m.sum[:0])
	*to = m.sum
	s.macs.Put(m)
}

// Seal writes h to page, which has HeaderBytes, twice: flipped bits in one copy
// leave the other.
//
//	0 magic [8] · 8 free u8 · 9 zero [7] · 16 key: space [16], hash [16] · 48 parent [16]
//	64 depth u32 · 68 tokens u32 · 72 size u32 · 76 segment u32 · 80 offset u64
//	88 extent bytes u32 · 92 created u32 · 96 void u64 · 104 sequence u64 · 112 payload checksum u64 · 120 dies u32 · 124 zero u32
//	128 HMAC-SHA-256 over the 128 bytes before
//	2048 the same once more
//
// Integers are little-endian.
func (s *Sealer) Seal(page []byte, h *Header) {
	clear(page)
	le := binary.LittleEndian
	b := page[:headerCopy]
	copy(b, headerMagic)
	if h.Free {
		b[8] = 1
	}
	copy(b[16:], h.Key.Space[:])
	copy(b[32:], h.Key.Hash[:])
	copy(b[48:], h.Parent[:])
	le.PutUint32(b[64:], h.Depth)
	le.PutUint32(b[68:], h.Tokens)
	le.PutUint32(b[72:], h.Size)
	le.PutUint32(b[76:], h.Extent.Segment)
	le.PutUint64(b[80:], uint64(h.Extent.Offset))
	le.PutUint32(b[88:], h.Extent.Bytes)
	le.PutUint32(b[92:], h.Created)
	le.PutUint64(b[96:], uint64(h.Void))
	le.PutUint64(b[104:], h.Seq)
	le.PutUint64(b[112:], h.Entry.Sum)
	le.PutUint32(b[120:], h.Expires)
	var sum [sha256.Size]byte
	s.sum(b[:headerBody], &sum)
	copy(b[headerBody:], sum[:])
	copy(page[headerSecond:], b)
}

// Open reads the header in page into h. It reports false where there is none
// of this set, or it was written for another place than offset of segment.
func (s *Sealer) Open(page []byte, segment uint32, offset int64, h *Header) bool {
	return s.open(page[:headerCopy], segment, offset, h) || s.open(page[headerSecond:headerSecond+headerCopy], segment, offset, h)
}

func (s *Sealer) open(b []byte, segment uint32, offset int64, h *Header) bool {
	if string(b[:len(headerMagic)]) != headerMagic {
		return false
	}
	var sum [sha256.Size]byte
	if s.sum(b[:headerBody], &sum); !hmac.Equal(sum[:], b[headerBody:]) {
		return false
	}
	le := binary.LittleEndian
	*h = Header{Free: b[8] != 0, Void: int64(le.Uint64(b[96:]))}
	copy(h.Key.Space[:], b[16:])
	copy(h.Key.Hash[:], b[32:])
	copy(h.Parent[:], b[48:])
	h.Depth, h.Tokens, h.Size = le.Uint32(b[64:]), le.Uint32(b[68:]), le.Uint32(b[72:])
	h.Extent = Extent{Segment: le.Uint32(b[76:]), Offset: int64(le.Uint64(b[80:])), Bytes: le.Uint32(b[88:])}
	h.Created, h.Used = le.Uint32(b[92:]), le.Uint32(b[92:])
	h.Seq, h.Entry.Sum = le.Uint64(b[104:]), le.Uint64(b[112:])
	h.Expires = le.Uint32(b[120:])
	return h.Extent.Segment == segment && h.Extent.Offset == offset
}

// Prefixes keep the kinds apart, so that a scan of entries reads no payload. 'g' was that
// of notes of deletions, which older programs wrote here too.
const (
	prefixEntry   = 'e'
	prefixPayload = 'p'
	prefixCommits = 'c'
)

// KeyBytes is the size of entry and payload keys: prefix, space, hash.
const KeyBytes = 1 + 16 + 16

// EntryPrefix begins every entry key and nothing else.
func EntryPrefix() []byte { return []byte{prefixEntry} }

// EntryKey is the database key of k's entry.
func EntryKey(k key.Key) [KeyBytes]byte { return chunkKey(prefixEntry, k) }

// ParseEntryKey undoes EntryKey. It reports false for any other key.
func ParseEntryKey(b []byte) (k key.Key, ok bool) {
	if len(b) != KeyBytes || b[0] != prefixEntry {
		return key.Key{}, false
	}
	copy(k.Space[:], b[1:17])
	copy(k.Hash[:], b[17:])
	return k, true
}

// PayloadKey is the database key of k's payload when its entry is inline. The
// value is the bare payload; the entry holds its checksum.
func PayloadKey(k key.Key) [KeyBytes]byte { return chunkKey(prefixPayload, k) }

func chunkKey(prefix byte, k key.Key) [KeyBytes]byte {
	var b [KeyBytes]byte
	b[0] = prefix
	copy(b[1:], k.Space[:])
	copy(b[17:], k.Hash[:])
	return b
}

// CommitsKey is the database key of the number of the last commit.
func CommitsKey() []byte { return []byte{prefixCommits} }
