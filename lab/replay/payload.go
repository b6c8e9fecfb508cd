package replay

import (
	"encoding/binary"
	"math/bits"

	"github.com/kvstored/kvstored/key"
)

// A payload is the stream of 64-bit little-endian words
//
//	word(a + i*b), i = 0, 1, 2, ...
//
// cut to its length, where a and the odd b are computed from all 32 bytes of
// the key. word is one round of the finalizer of SplitMix64 (Steele, Lea,
// Flood: Fast splittable pseudorandom number generators, OOPSLA 2014, figure
// 15); the whole one would halve the speed of a replay. It maps no two numbers
// to the same word, and bytes of another chunk, or of the same chunk at
// another place, do not match.

const (
	mix1 = 0xbf58476d1ce4e5b9
	mix2 = 0x94d049bb133111eb
)

func word(z uint64) uint64 { return (z ^ z>>30) * mix1 }

// mix is the whole finalizer.
func mix(z uint64) uint64 {
	z = word(z)
	z = (z ^ z>>27) * mix2
	return z ^ z>>31
}

// stream is where the next word of a payload comes from.
type stream struct{ at, step uint64 }

func newStream(k *key.Key) stream {
	a := mix(binary.LittleEndian.Uint64(k.Space[:8]))
	a = mix(a ^ binary.LittleEndian.Uint64(k.Space[8:]))
	a = mix(a ^ binary.LittleEndian.Uint64(k.Hash[:8]))
	a = mix(a ^ binary.LittleEndian.Uint64(k.Hash[8:]))
	return stream{at: a, step: mix(a) | 1}
}

// tail is the next word, for the last bytes of a payload.
func (s stream) tail() (b [8]byte) {
	binary.LittleEndian.PutUint64(b[:], word(s.at))
	return b
}

// Fill makes the payload of k in p.
func Fill(p []byte, k key.Key) {
	s := newStream(&k)
	for len(p) >= 32 { // four words at a time keep both multipliers busy
		b := p[:32:32]
		binary.LittleEndian.PutUint64(b[0:], word(s.at))
		binary.LittleEndian.PutUint64(b[8:], word(s.at+s.step))
		binary.LittleEndian.PutUint64(b[16:], word(s.at+2*s.step))
		binary.LittleEndian.PutUint64(b[24:], word(s.at+3*s.step))
		s.at += 4 * s.step
		p = p[32:]
	}
	for len(p) >= 8 {
		binary.LittleEndian.PutUint64(p, word(s.at))
		s.at += s.step
		p = p[8:]
	}
	last := s.tail()
	copy(p, last[:])
}

// Verify compares every byte of p with the payload of k. It returns the offset
// of the first that is wrong, or -1.
func Verify(p []byte, k key.Key) int {
	s := newStream(&k)
	off := 0
	for ; len(p)-off >= 32; off += 32 {
		b := p[off:][:32:32]
		wrong := binary.LittleEndian.Uint64(b[0:]) ^ word(s.at)
		wrong |= binary.LittleEndian.Uint64(b[8:]) ^ word(s.at+s.step)
		wrong |= binary.LittleEndian.Uint64(b[16:]) ^ word(s.at+2*s.step)
		wrong |= binary.LittleEndian.Uint64(b[24:]) ^ word(s.at+3*s.step)
		if wrong != 0 {
			break // the loop below finds the byte
		}
		s.at += 4 * s.step
	}
	for ; len(p)-off >= 8; off += 8 {
		if wrong := binary.LittleEndian.Uint64(p[off:]) ^ word(s.at); wrong != 0 {
			return off + bits.TrailingZeros64(wrong)/8
		}
		s.at += s.step
	}
	last := s.tail()
	for i, b := range p[off:] {
		if b != last[i] {
			return off + i
		}
	}
	return -1
}
