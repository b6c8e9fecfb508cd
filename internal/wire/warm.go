package wire

// WarmRequest promotes a chain to DRAM without leasing it.
type WarmRequest struct {
	Chain    Chain // FormNone with a lookup id
	Search   Tiers
	LookupID string   // of a prefetch of the same user, whose prompt is meant; empty: Chain is
	Deadline Deadline // answer when it is done, or then; not given: at once
}

// Append implements Message.
func (m *WarmRequest) Append(dst []byte) []byte {
	dst = appendZero(append(m.Chain.append(dst), byte(m.Search)), 7)
	return appendDeadline(appendStr(dst, m.LookupID), m.Deadline)
}

// Decode implements Message.
func (m *WarmRequest) Decode(body []byte) error {
	c := requestCursor(body)
	*m = WarmRequest{}
	c.chain(&m.Chain)
	m.Search = Tiers(c.flags(uint8(tiersKnown), "search"))
	c.zero(7, "search")
	m.LookupID = c.str("lookup id")
	if named := m.LookupID != ""; c.err == nil && named != (m.Chain.Form == FormNone) {
		c.fail("lookup id", "%q with a chain of form %s: send a chain, or a lookup id and form none", m.LookupID, m.Chain.Form)
	}
	return c.endRequest("warm", &m.Deadline)
}

// WarmReply is the match and its progress: the state of a job without
// refs, since nothing is leased.
type WarmReply struct {
	Match Match
	State JobState
}

// Append implements Message.
func (m *WarmReply) Append(dst []byte) []byte {
	return noOptions(m.State.appendRecord(appendMatch(dst, &m.Match)))
}

// Decode implements Message.
func (m *WarmReply) Decode(body []byte) error {
	c := replyCursor(body)
	m.Match = c.match()
	stateRecord(&c, &m.State)
	return c.endReply("warm reply")
}
