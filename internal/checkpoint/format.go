package checkpoint

import (
	"encoding/binary"
	"errors"
	"math"

	"github.com/zeebo/xxh3"

	"github.com/kvstored/kvstored/key"
)

// Version is that of the format. A file of any other is refused.
const Version = 1

// RecordBytes is what an entry takes in the file.
const RecordBytes = 64

const (
	magic       = "kvsDRAM\n"
	headerBytes = 128
	spaceBytes  = 16
	voidBytes   = 16
	sumAt       = headerBytes - 8
	policyAt    = 64
	policyBytes = 32
	unitBytes   = 4 << 10 // of offsets in the arena
)

// The errors of Open, wrapped with the reason.
var (
	ErrDamaged = errors.New("checkpoint: damaged")
	ErrVersion = errors.New("checkpoint: of another version")
)

// Record is one entry of DRAM.
type Record struct {
	Key    key.Key
	Parent key.Hash // of the chunk before it; zero for the first
	Offset int64    // of its payload in the arena, a multiple of 4 KiB
	Size   uint32   // of the payload in bytes, above 0
	Sum    uint64   // of the payload
	Word   uint64   // what the tier keeps with the entry; see tier.HotValue
	Hits   uint8    // uses, saturating
	Below  uint8    // tiers below that have it, a bit for each
	Dirty  bool     // the tiers below lack it
}

// Void is a part of the arena that a process may still write, such as a device that
// hangs. It is not to be used as long as that process lives.
type Void struct{ Offset, Bytes int64 }

const flagDirty = 1

// put writes a record whose space has a number. Offsets fit: an arena has at most
// 2^32 units, 16 TiB.
func (r *Record) put(p []byte, space uint32) {
	copy(p, r.Key.Hash[:])
	copy(p[16:], r.Parent[:])
	le := binary.LittleEndian
	le.PutUint64(p[32:], r.Sum)
	le.PutUint64(p[40:], r.Word)
	le.PutUint32(p[48:], uint32(r.Offset/unitBytes))
	le.PutUint32(p[52:], r.Size)
	le.PutUint32(p[56:], space)
	p[60], p[61], p[62], p[63] = r.Hits, r.Below, 0, 0
	if r.Dirty {
		p[62] = flagDirty
	}
}

// header is the first bytes of a file.
type header struct {
	arenaBytes, records, spaces, voids, learned uint64
	policy                                      string
}

func (h *header) put(p []byte, body uint64) {
	le := binary.LittleEndian
	clear(p)
	copy(p, magic)
	le.PutUint32(p[8:], Version)
	le.PutUint32(p[12:], RecordBytes)
	for i, n := range []uint64{h.arenaBytes, h.records, h.spaces, h.voids, h.learned} {
		le.PutUint64(p[16+8*i:], n)
	}
	copy(p[policyAt:policyAt+policyBytes], h.policy)
	le.PutUint64(p[sumAt:], fold(p[:sumAt], body))
}

// fold is the checksum of a file whose body sums to body.
func fold(head []byte, body uint64) uint64 { return xxh3.HashSeed(head, body) }

// bytes is how long the file is; false if that is more than any file.
func (h *header) bytes() (n uint64, ok bool) {
	n = headerBytes
	for _, part := range []struct{ n, each uint64 }{{h.records, RecordBytes}, {h.spaces, spaceBytes}, {h.voids, voidBytes}, {h.learned, 1}} {
		if part.n > math.MaxInt32*uint64(64) {
			return 0, false
		}
		n += part.n * part.each
	}
	return n, true
}
