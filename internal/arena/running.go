package arena

import (
	"encoding/binary"
	"math/bits"

	"github.com/zeebo/xxh3"

	"github.com/kvstored/kvstored/internal/base"
)

const (
	blockBytes  = 1024 // after so many bytes the state is scrambled
	stripeWidth = 64
)

// RunningSum is the checksum of a buffer that is filled from its begin to its
// end. Each part is hashed as it arrives, while it is hot, but for the last
// 1,024 bytes. Create it with Over. It is not safe for concurrent use.
type RunningSum struct {
	buf      []byte
	arrived  int // bytes that are there
	hashed   int // of these, in whole blocks
	lanes    [8]uint64
	inPieces bool
}

// SumOver is the checksum of p, of which nothing has arrived yet. The caller
// changes no byte after it has arrived.
func SumOver(p []byte) RunningSum {
	return RunningSum{buf: p, lanes: start, inPieces: vectors && len(p) > blockBytes}
}

// Copy stores src as the next bytes, of which there are no more than have room.
func (r *RunningSum) Copy(src []byte) {
	if !r.fits(len(src)) {
		return
	}
	// The last block is never hashed here, so that the end is left to Sum.
	for r.inPieces && len(src) > 0 {
		if part := (r.arrived - r.hashed) % blockBytes; part != 0 {
			n := copy(r.buf[r.arrived:], src[:min(len(src), blockBytes-part)])
			r.Arrived(n)
			src = src[n:]
			continue
		}
		blocks := min(len(src), copyPiece, len(r.buf)-1-r.arrived) / blockBytes
		if blocks == 0 {
			break
		}
		dst := r.buf[r.arrived:]
		if streams && len(r.buf) >= streamedBytes && toLine(dst) == 0 {
			streamBlocks(&r.lanes, &secret, &dst[0], &src[0], blocks)
		} else {
			copyBlocks(&r.lanes, &secret, &dst[0], &src[0], blocks)
		}
		src = src[blocks*blockBytes:]
		r.arrived += blocks * blockBytes
		r.hashed = r.arrived
	}
	n := Copy(r.buf[r.arrived:], src)
	r.Arrived(n)
}

// Arrived says that the next n bytes are in the buffer.
func (r *RunningSum) Arrived(n int) {
	if !r.fits(n) {
		return
	}
	r.arrived += n
	if !r.inPieces {
		return
	}
	for {
		blocks := min(r.arrived-r.hashed, copyPiece, len(r.buf)-1-r.hashed) / blockBytes
		if blocks == 0 {
			return
		}
		hashBlocks(&r.lanes, &secret, &r.buf[r.hashed], blocks)
		r.hashed += blocks * blockBytes
	}
}

func (r *RunningSum) fits(n int) bool {
	fits := n >= 0 && n <= len(r.buf)-r.arrived
	if !fits {
		base.Broken("bulk: %d bytes arrived behind %d of %d", n, r.arrived, len(r.buf))
	}
	return fits
}

// Sum is the checksum of the buffer, all of which has arrived.
func (r *RunningSum) Sum() uint64 {
	whole := r.arrived == len(r.buf)
	if !whole {
		base.Broken("bulk: checksum of %d bytes, of which %d arrived", len(r.buf), r.arrived)
	}
	if !whole || !r.inPieces {
		return xxh3.Hash(r.buf)
	}
	lanes, rest := r.lanes, r.buf[r.hashed:]
	for i := 0; i < (len(rest)-1)/stripeWidth; i++ {
		accumulate(&lanes, rest[i*stripeWidth:], secret[8*i:])
	}
	accumulate(&lanes, r.buf[len(r.buf)-stripeWidth:], secret[len(secret)-stripeWidth-7:])
	return merge(&lanes, len(r.buf))
}

// The constants of XXH3, as its specification has them.
const (
	prime32x1 = 0x9E3779B1
	prime32x2 = 0x85EBCA77
	prime32x3 = 0xC2B2AE3D
	prime64x1 = 0x9E3779B185EBCA87
	prime64x2 = 0xC2B2AE3D27D4EB4F
	prime64x3 = 0x165667B19E3779F9
	prime64x4 = 0x85EBCA77C2B2AE63
	prime64x5 = 0x27D4EB2F165667C5

	avalanche = 0x165667919E3779F9
)

var start = [8]uint64{prime32x3, prime64x1, prime64x2, prime64x3, prime64x4, prime32x2, prime64x5, prime32x1}

var secret = [192]byte{
	0xb8, 0xfe, 0x6c, 0x39, 0x23, 0xa4, 0x4b, 0xbe, 0x7c, 0x01, 0x81, 0x2c, 0xf7, 0x21, 0xad, 0x1c,
	0xde, 0xd4, 0x6d, 0xe9, 0x83, 0x90, 0x97, 0xdb, 0x72, 0x40, 0xa4, 0xa4, 0xb7, 0xb3, 0x67, 0x1f,
	0xcb, 0x79, 0xe6, 0x4e, 0xcc, 0xc0, 0xe5, 0x78, 0x82, 0x5a, 0xd0, 0x7d, 0xcc, 0xff, 0x72, 0x21,
	0xb8, 0x08, 0x46, 0x74, 0xf7, 0x43, 0x24, 0x8e, 0xe0, 0x35, 0x90, 0xe6, 0x81, 0x3a, 0x26, 0x4c,
	0x3c, 0x28, 0x52, 0xbb, 0x91, 0xc3, 0x00, 0xcb, 0x88, 0xd0, 0x65, 0x8b, 0x1b, 0x53, 0x2e, 0xa3,
	0x71, 0x64, 0x48, 0x97, 0xa2, 0x0d, 0xf9, 0x4e, 0x38, 0x19, 0xef, 0x46, 0xa9, 0xde, 0xac, 0xd8,
	0xa8, 0xfa, 0x76, 0x3f, 0xe3, 0x9c, 0x34, 0x3f, 0xf9, 0xdc, 0xbb, 0xc7, 0xc7, 0x0b, 0x4f, 0x1d,
	0x8a, 0x51, 0xe0, 0x4b, 0xcd, 0xb4, 0x59, 0x31, 0xc8, 0x9f, 0x7e, 0xc9, 0xd9, 0x78, 0x73, 0x64,
	0xea, 0xc5, 0xac, 0x83, 0x34, 0xd3, 0xeb, 0xc3, 0xc5, 0x81, 0xa0, 0xff, 0xfa, 0x13, 0x63, 0xeb,
	0x17, 0x0d, 0xdd, 0x51, 0xb7, 0xf0, 0xda, 0x49, 0xd3, 0x16, 0x55, 0x26, 0x29, 0xd4, 0x68, 0x9e,
	0x2b, 0x16, 0xbe, 0x58, 0x7d, 0x47, 0xa1, 0xfc, 0x8f, 0xf8, 0xb8, 0xd1, 0x7a, 0xd0, 0x31, 0xce,
	0x45, 0xcb, 0x3a, 0x8f, 0x95, 0x16, 0x04, 0x28, 0xaf, 0xd7, 0xfb, 0xca, 0xbb, 0x4b, 0x40, 0x7e,
}

// accumulate takes in one stripe.
func accumulate(lanes *[8]uint64, stripe, secret []byte) {
	for i := range lanes {
		word := binary.LittleEndian.Uint64(stripe[8*i:])
		mixed := word ^ binary.LittleEndian.Uint64(secret[8*i:])
		lanes[i^1] += word
		lanes[i] += mixed & 0xFFFFFFFF * (mixed >> 32)
	}
}

// merge makes the checksum of n bytes from the lanes.
func merge(lanes *[8]uint64, n int) uint64 {
	h := uint64(n) * prime64x1
	for i := 0; i < len(lanes); i += 2 {
		s := secret[11+8*i:]
		hi, lo := bits.Mul64(lanes[i]^binary.LittleEndian.Uint64(s), lanes[i+1]^binary.LittleEndian.Uint64(s[8:]))
		h += hi ^ lo
	}
	h = (h ^ h>>37) * avalanche
	return h ^ h>>32
}
