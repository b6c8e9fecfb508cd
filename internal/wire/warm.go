package wire

import "encoding/binary"

// WarmRequest promotes a chain to DRAM without leasing it.
type WarmRequest struct {
	Named         bool   // by LookupID, otherwise by Chain
	Chain         Chain  // unless Named
	LookupID      string // Named: of a prefetch of the same user
	Search        Tiers
	TimeoutMillis uint32 // answer when it is done, or then; 0 answers at once
}

// Append implements Message.
func (m *WarmRequest) Append(dst []byte) []byte {
	if dst = appendBool(dst, m.Named); m.Named {
		dst = appendStr(dst, m.LookupID)
	} else {
		dst = m.Chain.append(dst)
	}
	dst = binary.LittleEndian.AppendUint32(append(dst, byte(m.Search)), m.TimeoutMillis)
	return appendOptions(dst)
}

// Decode implements Message.
func (m *WarmRequest) Decode(body []byte) error {
	c := cursor{b: body}
	*m = WarmRequest{Named: c.bool("named")}
	if m.Named {
		m.LookupID = c.str("lookup id")
	} else {
		c.chain(&m.Chain)
	}
	m.Search = Tiers(c.flags(uint8(tiersKnown), "search"))
	m.TimeoutMillis = c.u32("timeout")
	return c.endRequest("warm")
}

// WarmReply is the match and its progress: the state of a job without
// refs, since nothing is leased.
type WarmReply struct {
	Match Match
	State JobState
}

// Append implements Message.
func (m *WarmReply) Append(dst []byte) []byte { return m.State.Append(appendMatch(dst, &m.Match)) }

// Decode implements Message.
func (m *WarmReply) Decode(body []byte) error {
	c := cursor{b: body}
	m.Match = c.match()
	c.jobState(&m.State)
	return c.end("warm reply")
}
