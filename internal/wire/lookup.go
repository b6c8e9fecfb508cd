package wire

import "encoding/binary"

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

// Count is a number of chunks and of the tokens in them.
type Count struct {
	Chunks uint32
	Tokens uint64
}

func appendCount(dst []byte, n Count) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, n.Chunks)
	return binary.LittleEndian.AppendUint64(dst, n.Tokens)
}

func (c *cursor) count(field string) Count {
	return Count{Chunks: c.u32(field), Tokens: c.u64(field)}
}

// TierCounts is a Count for cpu, disk and remote.
type TierCounts [TierCount]Count

func appendTierCounts(dst []byte, ts *TierCounts) []byte {
	dst = append(dst, TierCount)
	for _, t := range ts {
		dst = appendCount(dst, t)
	}
	return dst
}

// tierCounts reads as many as there are: missing tiers count nothing, tiers
// of a newer peer are passed over.
func (c *cursor) tierCounts() (ts TierCounts) {
	for i := range c.u8("tiers") {
		n := c.count("tier count")
		if int(i) < len(ts) {
			ts[i] = n
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
	Ranks  U32s // handles of further spaces that must have every chunk
}

// Append implements Message.
func (m *LookupRequest) Append(dst []byte) []byte {
	dst = m.Chain.append(dst)
	return appendPrefetchOptions(append(dst, byte(m.Search)), m.Ranks, 0)
}

// Decode implements Message.
func (m *LookupRequest) Decode(body []byte) error {
	c := cursor{b: body}
	c.chain(&m.Chain)
	m.Search = Tiers(c.flags(uint8(tiersKnown), "search"))
	m.Ranks = nil
	return c.endWith("lookup", c.prefetchOptions(&m.Ranks, nil))
}

// LookupReply is the answer.
type LookupReply struct {
	Match Match
	// Worth is how many chunks, from the first on, are there or worth storing:
	// keys behind them would be refused.
	Worth uint32
}

// Append implements Message.
func (m *LookupReply) Append(dst []byte) []byte {
	return binary.LittleEndian.AppendUint32(appendMatch(dst, &m.Match), m.Worth)
}

// Decode implements Message.
func (m *LookupReply) Decode(body []byte) error {
	c := cursor{b: body}
	m.Match = c.match()
	m.Worth = c.u32("worth")
	return c.end("lookup reply")
}
