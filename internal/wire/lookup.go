package wire

import (
	"encoding/binary"
	"strings"
)

// Tiers is a set of tiers, nearest first.
type Tiers uint8

// The tiers. An empty set in a request means all of them.
const (
	TierCPU    Tiers = 1 << 0
	TierDisk   Tiers = 1 << 1
	TierRemote Tiers = 1 << 2

	tiersKnown = TierCPU | TierDisk | TierRemote
	// TierCount is the number of tiers that matches and states count apart.
	TierCount = 3
)

// String names the tiers, as disk or cpu+disk.
func (t Tiers) String() string {
	var names []string
	for i, name := range [...]string{"cpu", "disk", "remote"} {
		if t&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, "+")
}

// Count is a number of chunks and of the tokens in them.
type Count struct {
	Chunks uint32
	Tokens uint64
}

const countBytes = 16

func appendCount(dst []byte, n Count) []byte {
	dst = binary.LittleEndian.AppendUint64(dst, n.Tokens)
	dst = binary.LittleEndian.AppendUint32(dst, n.Chunks)
	return appendZero(dst, 4)
}

func (c *cursor) count(field string) Count {
	n := Count{Tokens: c.u64(field), Chunks: c.u32(field)}
	c.zero(4, field)
	return n
}

// TierCounts is a Count for cpu, disk and remote.
type TierCounts [TierCount]Count

func appendTierCounts(dst []byte, ts *TierCounts) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, TierCount)
	dst = binary.LittleEndian.AppendUint32(dst, countBytes)
	for _, t := range ts {
		dst = appendCount(dst, t)
	}
	return dst
}

// tierCounts reads as many as there are: missing tiers count nothing, tiers
// of a newer peer are passed over.
func (c *cursor) tierCounts() (ts TierCounts) {
	sub := cursor{b: c.array(countBytes, "tiers"), err: c.err}
	for i := range ts {
		if sub.left() > 0 {
			ts[i] = sub.count("tier count")
		}
	}
	return ts
}

// Match is how much of a chain is there: the longest leading run, and where
// the chunks of it are nearest.
type Match struct {
	Total Count
	Tiers TierCounts
}

func appendMatch(dst []byte, m *Match) []byte {
	return appendTierCounts(appendCount(dst, m.Total), &m.Tiers)
}

func (c *cursor) match() Match {
	return Match{Total: c.count("matched"), Tiers: c.tierCounts()}
}

// LookupRequest asks how much of a chain is there. It reads memory only and
// takes no lease, so the answer may be old when it arrives.
type LookupRequest struct {
	Chain  Chain
	Search Tiers
	Shared Shared
}

// Append implements Message.
func (m *LookupRequest) Append(dst []byte) []byte {
	dst = m.Chain.append(dst)
	return m.Shared.append(appendZero(append(dst, byte(m.Search)), 7))
}

// Decode implements Message.
func (m *LookupRequest) Decode(body []byte) error {
	c := requestCursor(body)
	c.chain(&m.Chain)
	m.Search = Tiers(c.flags(uint8(tiersKnown), "search"))
	c.zero(7, "search")
	m.Shared = Shared{}
	if c.bare() {
		return c.end("lookup")
	}
	return c.endWith("lookup", nil, m.Shared.option(false))
}

// LookupReply is the answer.
type LookupReply struct {
	Match Match
	// Worth is how many chunks, from the first on, are there or worth storing:
	// keys behind them would be refused.
	Worth   uint32
	Grouped *Grouped // nil unless the request named groups
	Missing *Missing // nil unless it was asked for, and something is missing
}

// Missing is why the first chunk behind a match is not there.
type Missing struct {
	Code Code   // see docs/protocol-more.md
	Tier Tiers  // one, or none
	Ago  uint32 // seconds since it left, or was declined; NotKnown
}

// NotKnown is a number of seconds that is not known.
const NotKnown = 1<<32 - 1

func (m *Missing) appendOption(l *optionList) {
	if m == nil {
		return
	}
	at := l.begin(replyMissing)
	l.dst = binary.LittleEndian.AppendUint16(l.dst, uint16(m.Code))
	l.dst = binary.LittleEndian.AppendUint32(append(l.dst, byte(m.Tier), 0), m.Ago)
	l.finish(at)
}

func missingIn(v *cursor) *Missing {
	m := &Missing{Code: Code(v.u16("missing code")), Tier: Tiers(v.u8("missing tier"))}
	v.zero(1, "missing")
	m.Ago = v.u32("missing ago")
	return m
}

// Append implements Message.
func (m *LookupReply) Append(dst []byte) []byte {
	dst = binary.LittleEndian.AppendUint32(appendMatch(dst, &m.Match), m.Worth)
	l := beginOptions(appendZero(dst, 4), Deadline{})
	m.Grouped.appendOption(&l, replyMatched)
	m.Missing.appendOption(&l)
	return l.end()
}

// Decode implements Message.
func (m *LookupReply) Decode(body []byte) error {
	c := replyCursor(body)
	m.Match = c.match()
	m.Worth = c.u32("worth")
	c.zero(4, "worth")
	m.Grouped, m.Missing = nil, nil
	if c.bare() {
		return c.end("lookup reply")
	}
	c.options(func(tag uint16, v *cursor) bool {
		switch tag {
		case replyMatched:
			m.Grouped = groupedIn(v)
		case replyLengths:
			lengthsIn(v, m.Grouped)
		case replyMissing:
			m.Missing = missingIn(v)
		default:
			return false
		}
		return true
	})
	return c.end("lookup reply")
}
