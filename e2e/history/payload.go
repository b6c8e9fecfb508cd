package history

import (
	"encoding/binary"
	"fmt"

	"github.com/kvstored/kvstored/key"
)

// A payload begins with a header and goes on with words that follow from its
// version and their place, so that no part of one passes for that of another.
const (
	headerBytes = 4 + 4 + 16 + 8
	magic       = 0x6b766373
)

// version names one write of one chunk, by any client, of one run.
type version uint64

// fill makes b the payload of a version.
func fill(b []byte, k key.Hash, v version) {
	binary.LittleEndian.PutUint32(b, magic)
	binary.LittleEndian.PutUint32(b[4:], uint32(len(b)))
	copy(b[8:], k[:])
	binary.LittleEndian.PutUint64(b[24:], uint64(v))
	at, n := headerBytes, uint64(0)
	for ; at+8 <= len(b); at, n = at+8, n+1 {
		binary.LittleEndian.PutUint64(b[at:], word(v, n))
	}
	for ; at < len(b); at, n = at+1, n+1 {
		b[at] = byte(word(v, n))
	}
}

// parse returns the key and writer of a payload. The error says why it has none.
func parse(b []byte) (k key.Hash, v version, err error) {
	if len(b) < headerBytes || binary.LittleEndian.Uint32(b) != magic {
		return k, 0, fmt.Errorf("%d bytes without a header", len(b))
	}
	k, v = key.Hash(b[8:24]), version(binary.LittleEndian.Uint64(b[24:]))
	if n := binary.LittleEndian.Uint32(b[4:]); int(n) != len(b) {
		return k, v, fmt.Errorf("%d bytes of a payload of %d", len(b), n)
	}
	at, n := headerBytes, uint64(0)
	for at+8 <= len(b) && binary.LittleEndian.Uint64(b[at:]) == word(v, n) {
		at, n = at+8, n+1
	}
	for at+8 > len(b) && at < len(b) && b[at] == byte(word(v, n)) {
		at, n = at+1, n+1
	}
	if at < len(b) {
		return k, v, fmt.Errorf("byte %d of %d is another payload's", at, len(b))
	}
	return k, v, nil
}

// word is what stands in the n-th place behind the header.
func word(v version, n uint64) uint64 { return mix(uint64(v) + n*0x9e3779b97f4a7c15) }

// mix is the finaliser of splitmix64 (Steele, Lea, Flood, OOPSLA 2014).
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
