package wire

import (
	"encoding/binary"
	"fmt"
)

// optionIgnorable marks tags that a daemon may pass over if it does not know
// them. Any other unknown tag refuses the request.
const optionIgnorable = 1 << 15

// ErrUnknownOption is wrapped, besides ErrMalformed, when a request carries an
// option that this side does not know and must not ignore. A server answers
// it with StatusUnknownOption.
var ErrUnknownOption = fmt.Errorf("%w: unknown option", ErrMalformed)

// optionWait, in a reserve, is a u32: how many milliseconds the answer may wait
// for room.
const optionWait = 1

// optionSums, in a reserve, is a list of Sum, at most maxSums.
const (
	optionSums = optionIgnorable | 2
	maxSums    = 4096
)

// Of a lookup, a prefetch and a batch. A list of ranks is u32 handles of
// spaces, at most maxRanks; a prefill rate is a u32, tokens a second.
const (
	optionRanks       = 1
	optionPrefillRate = 2 // not of a lookup
	optionConfigs     = 3 // of a batch only
	maxRanks          = 1024
)

// options reads the list at the end of a request: u16 count, then for each
// u16 tag, u16 length and the bytes. known, unless nil, takes the value of a
// tag and reports whether it is one of the message's.
func (c *cursor) options(known func(tag uint16, value cursor) bool) {
	n := c.u16("options")
	for range n {
		if c.err != nil {
			return
		}
		tag := c.u16("option tag")
		value := c.bytes(int64(c.u16("option length")), "option")
		if c.err != nil || known != nil && known(tag, cursor{b: value}) {
			continue
		}
		if tag&optionIgnorable == 0 {
			c.err = fmt.Errorf("%w %d at byte %d", ErrUnknownOption, tag, c.off)
		}
	}
}

// appendOptions appends the empty list.
func appendOptions(dst []byte) []byte { return binary.LittleEndian.AppendUint16(dst, 0) }

// optionList is a list being appended.
type optionList struct {
	dst []byte
	at  int // where its count lies
	n   uint16
}

func beginOptions(dst []byte) optionList { return optionList{dst: appendOptions(dst), at: len(dst)} }

// add appends an option unless its value is empty.
func (l *optionList) add(tag uint16, value []byte) {
	if len(value) == 0 {
		return
	}
	l.n++
	l.dst = binary.LittleEndian.AppendUint16(l.dst, tag)
	l.dst = append(binary.LittleEndian.AppendUint16(l.dst, uint16(len(value))), value...)
}

// add32 appends an option of one number, unless that is 0.
func (l *optionList) add32(tag uint16, v uint32) {
	var value [4]byte
	if binary.LittleEndian.PutUint32(value[:], v); v != 0 {
		l.add(tag, value[:])
	}
}

func (l *optionList) end() []byte {
	binary.LittleEndian.PutUint16(l.dst[l.at:], l.n)
	return l.dst
}

func appendReserveOptions(dst []byte, millis uint32, sums Sums) []byte {
	l := beginOptions(dst)
	l.add32(optionWait, millis)
	l.add(optionSums, sums)
	return l.end()
}

// appendPrefetchOptions appends the list of a prefetch's options.
func appendPrefetchOptions(dst []byte, ranks U32s, rate uint32) []byte {
	l := beginOptions(dst)
	l.add(optionRanks, ranks)
	l.add32(optionPrefillRate, rate)
	return l.end()
}

// prefetchOptions reads the options of a prefetch or a batch; rate is nil for
// those of a lookup.
func (c *cursor) prefetchOptions(ranks *U32s, rate *uint32) func(uint16, cursor) bool {
	return func(tag uint16, v cursor) bool {
		switch {
		case tag == optionRanks:
			if len(v.b)%4 != 0 || len(v.b) > 4*maxRanks {
				c.fail("ranks", "%d bytes, use 4 for each of at most %d", len(v.b), maxRanks)
			}
			*ranks = v.b
		case tag == optionPrefillRate && rate != nil:
			if *rate = v.u32("prefill rate"); v.err != nil || v.left() > 0 || *rate == 0 {
				c.fail("prefill rate", "%x, send 4 bytes that are not 0", v.b)
			}
		default:
			return false
		}
		return true
	}
}
