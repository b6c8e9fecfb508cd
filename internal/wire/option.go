package wire

import (
	"encoding/binary"
	"fmt"
	"time"
)

// optionCritical marks tags that a reader must know. Any other unknown tag is
// passed over.
const optionCritical = 1 << 15

// ErrUnknownOption is wrapped, besides ErrMalformed, when a message carries
// something that this side does not know and must not pass over. A server answers
// it with CodeUnknownOption.
var ErrUnknownOption = fmt.Errorf("%w: unknown option", ErrMalformed)

// The tags. A tag has one meaning in all requests; in replies it is their own.
const (
	tagDeadline    = 1
	tagSpace       = optionCritical | 2  // hello
	tagRanks       = optionCritical | 2  // lookup, prefetch, batch, hint
	tagPrefillRate = 3                   // prefetch, batch
	tagConfigs     = 4                   // prefetch, batch, hint
	tagGroups      = optionCritical | 5  // lookup, prefetch, batch, reserve
	tagSums        = 7                   // reserve
	tagLengths     = 10                  // lookup, prefetch
	tagMaxAge      = optionCritical | 11 // reserve, put
	tagGrain       = optionCritical | 12 // lookup, prefetch, batch, reserve
	tagWhy         = 13                  // lookup, prefetch, batch

	replySpace   = 2 // hello
	replyMatched = 5 // lookup
	replyAdvice  = 1 // prefetch
	replyFaults  = 2 // prefetch
	replyHints   = 1 // hint
	replyGrouped = 5 // prefetch
	replyNeeds   = 5 // state
	replyLengths = 6 // lookup, prefetch
	replyMissing = 7 // lookup, prefetch
	replyDiffer  = 1 // reserve
	replyLimit   = 1 // error
)

// Limits of what a request may list.
const (
	MaxSums    = 4096
	MaxRanks   = 1024
	MaxGroups  = 64
	MaxLengths = 4096
)

// Deadline is how long the answer to a request may wait, from its receipt. The
// zero Deadline leaves it to the operation.
type Deadline struct {
	Given  bool
	Millis uint32 // 0: not at all
}

// Within is the Deadline of d, which is rounded up to milliseconds.
func Within(d time.Duration) Deadline {
	if d <= 0 {
		return Deadline{Given: true}
	}
	return Deadline{true, uint32(min((d+time.Millisecond-1)/time.Millisecond, 1<<32-1))}
}

// Or is the time that was given, or d.
func (d Deadline) Or(otherwise time.Duration) time.Duration {
	if d.Given {
		return time.Duration(d.Millis) * time.Millisecond
	}
	return otherwise
}

// options reads the list at the end of a message. known, unless nil, takes the
// value of a tag and reports whether it is one of the message's.
func (c *cursor) options(known func(tag uint16, value *cursor) bool) {
	n := c.u32("options")
	c.zero(4, "options")
	before := -1
	for ; n > 0 && c.err == nil; n-- {
		tag := c.u16("option tag")
		c.zero(2, "option")
		size := int64(c.u32("option length"))
		base := c.base + c.off
		value := cursor{b: c.padded(size, 0, "option"), base: base, strict: c.strict, err: c.err}
		if c.err == nil && int(tag) <= before {
			c.fail("option tag", "%#x after %#x: send them in order, and none twice", tag, before)
		}
		before = int(tag)
		if c.err != nil {
			return
		}
		if known != nil && known(tag, &value) {
			c.ended(&value, "option")
			continue
		}
		if tag&optionCritical != 0 {
			c.err = fmt.Errorf("%w %#x at byte %d", ErrUnknownOption, tag, c.base+c.off)
		}
	}
}

// bare passes over the list at the end of a message if it is empty, as most are.
func (c *cursor) bare() bool {
	if c.err != nil || c.left() != 8 || binary.LittleEndian.Uint64(c.b[c.off:]) != 0 {
		return false
	}
	c.off = len(c.b)
	return true
}

// requestOptions is options for a request, which may have a deadline.
func (c *cursor) requestOptions(d *Deadline, known func(tag uint16, value *cursor) bool) {
	if d != nil {
		*d = Deadline{}
	}
	if c.bare() {
		return
	}
	c.options(func(tag uint16, v *cursor) bool {
		if tag != tagDeadline {
			return known != nil && known(tag, v)
		}
		millis := v.u32("deadline")
		if d != nil {
			*d = Deadline{true, millis}
		}
		return true
	})
}

// noOptions appends the empty list.
func noOptions(dst []byte) []byte { return appendZero(dst, 8) }

// appendDeadline appends a list of a deadline, or of nothing.
func appendDeadline(dst []byte, d Deadline) []byte {
	if !d.Given {
		return noOptions(dst)
	}
	l := beginOptions(dst, d)
	return l.end()
}

// optionList is a list being appended, in the order of the tags.
type optionList struct {
	dst []byte
	at  int // where its count lies
	n   uint32
}

func beginOptions(dst []byte, d Deadline) optionList {
	l := optionList{dst: noOptions(dst), at: len(dst)}
	if d.Given {
		l.put32(tagDeadline, d.Millis)
	}
	return l
}

// begin appends the head of an option, whose value the caller appends; finish,
// given its result, ends it.
func (l *optionList) begin(tag uint16) (start int) {
	l.n++
	start = len(l.dst)
	l.dst = binary.LittleEndian.AppendUint32(l.dst, uint32(tag)) // u16, and u16 zero
	l.dst = appendZero(l.dst, 4)
	return start
}

func (l *optionList) finish(start int) {
	n := len(l.dst) - start - 8
	binary.LittleEndian.PutUint32(l.dst[start+4:], uint32(n))
	l.dst = appendPad(l.dst, n)
}

// list appends an option of an array, unless that is empty.
func (l *optionList) list(tag uint16, size int, elements []byte) {
	if len(elements) == 0 {
		return
	}
	at := l.begin(tag)
	l.dst = appendArray(l.dst, size, elements)
	l.finish(at)
}

func (l *optionList) put32(tag uint16, v uint32) {
	at := l.begin(tag)
	l.dst = binary.LittleEndian.AppendUint32(l.dst, v)
	l.finish(at)
}

func (l *optionList) put64(tag uint16, v uint64) {
	at := l.begin(tag)
	l.dst = binary.LittleEndian.AppendUint64(l.dst, v)
	l.finish(at)
}

// add32 is put32 unless v is 0.
func (l *optionList) add32(tag uint16, v uint32) {
	if v != 0 {
		l.put32(tag, v)
	}
}

// maxAgeIn reads how old chunks may become.
func maxAgeIn(v *cursor) (seconds uint32) {
	if seconds = v.u32("max age"); seconds == 0 {
		v.fail("max age", "0, send seconds, or leave it out")
	}
	return seconds
}

// grainIn reads how many tokens lie between two hashes.
func grainIn(v *cursor) (tokens uint32) {
	if tokens = v.u32("grain"); tokens == 0 {
		v.fail("grain", "0 tokens, leave the option out where each chunk of the first group has a hash")
	}
	return tokens
}

func (l *optionList) end() []byte {
	binary.LittleEndian.PutUint32(l.dst[l.at:], l.n)
	return l.dst
}

// Shared are the options of a lookup, a prefetch and a batch.
type Shared struct {
	Ranks       U32s   // handles of further spaces that must have every chunk
	PrefillRate uint32 // tokens a second that the caller computes; 0 asks for no advice. Not of a lookup
	Configs     Pairs  // the engine's request configs. Not of a lookup
	Groups      Groups // of a hybrid model
	Lengths     uint32 // usable lengths of a hybrid model to name, the longest first; 0 asks for none
	Grain       uint32 // with Groups: tokens between two hashes of the chain; 0: a chunk of the first group
	Why         bool   // ask why the prompt is not there to its end
}

func (s *Shared) append(dst []byte) []byte {
	if len(s.Ranks)+len(s.Configs)+len(s.Groups) == 0 && s.PrefillRate|s.Lengths|s.Grain == 0 && !s.Why {
		return noOptions(dst)
	}
	l := beginOptions(dst, Deadline{})
	l.add32(tagPrefillRate, s.PrefillRate)
	if len(s.Configs) > 0 {
		at := l.begin(tagConfigs)
		l.dst = appendPairs(l.dst, s.Configs)
		l.finish(at)
	}
	l.add32(tagLengths, s.Lengths)
	if s.Why {
		l.put32(tagWhy, 1)
	}
	l.list(tagRanks, 4, s.Ranks)
	l.list(tagGroups, groupBytes, s.Groups)
	l.add32(tagGrain, s.Grain)
	return l.end()
}

// option reads one of the options; all says that the message may have each.
func (s *Shared) option(all bool) func(tag uint16, v *cursor) bool {
	*s = Shared{}
	return func(tag uint16, v *cursor) bool {
		switch {
		case tag == tagRanks:
			s.Ranks = v.numbers(4, "ranks")
			v.atMost(s.Ranks.Len(), MaxRanks, "ranks")
		case tag == tagGroups:
			s.Groups = groupsIn(v)
		case tag == tagLengths:
			s.Lengths = v.u32("lengths")
			if s.Lengths < 1 || s.Lengths > MaxLengths {
				v.fail("lengths", "%d, use 1 to %d", s.Lengths, MaxLengths)
			}
		case tag == tagGrain:
			s.Grain = grainIn(v)
		case tag == tagWhy:
			if s.Why = true; v.u32("why") != 1 {
				v.fail("why", "not 1: leave it out where no reason is wanted")
			}
		case tag == tagPrefillRate && all:
			if s.PrefillRate = v.u32("prefill rate"); s.PrefillRate == 0 {
				v.fail("prefill rate", "0, send tokens a second")
			}
		case tag == tagConfigs && all:
			s.Configs = pairsIn(v, "request configs")
		default:
			return false
		}
		return true
	}
}

func (c *cursor) atMost(n, most int, field string) {
	if n > most {
		c.fail(field, "%d, use at most %d", n, most)
	}
}
