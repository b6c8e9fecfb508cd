package wire

import "encoding/binary"

// MaxBatch is the most prompts of one batch.
const MaxBatch = 1024

// BatchRequest is a prefetch for each of many prompts, in the order in which
// they arrived. An option that names no prompt holds for all.
type BatchRequest struct {
	Search         Tiers
	Flags          uint8 // as of a prefetch
	Policy         WaitPolicy
	DeadlineMillis uint32
	MaxOvertaken   uint32 // how many later prompts may run before one of the batch
	Prompts        []BatchPrompt
	Ranks          U32s   // as of a prefetch
	PrefillRate    uint32 // as of a prefetch
	Configs        Pairs  // as of a prefetch, for all; an option
}

// BatchPrompt is one prompt of a batch.
type BatchPrompt struct {
	Chain     Chain
	LookupID  string
	Overtaken uint32 // later prompts that were run before this one already
}

// Append implements Message.
func (m *BatchRequest) Append(dst []byte) []byte {
	dst = append(dst, byte(m.Search), m.Flags, byte(m.Policy))
	dst = binary.LittleEndian.AppendUint32(dst, m.DeadlineMillis)
	dst = binary.LittleEndian.AppendUint32(dst, m.MaxOvertaken)
	dst = binary.LittleEndian.AppendUint16(dst, uint16(len(m.Prompts)))
	for i := range m.Prompts {
		p := &m.Prompts[i]
		dst = appendStr(p.Chain.append(dst), p.LookupID)
		dst = binary.LittleEndian.AppendUint32(dst, p.Overtaken)
	}
	l := beginOptions(dst)
	l.add(optionRanks, m.Ranks)
	l.add32(optionPrefillRate, m.PrefillRate)
	if n := m.Configs.Len(); n > 0 {
		l.add(optionConfigs, append(binary.LittleEndian.AppendUint16(nil, uint16(n)), m.Configs...))
	}
	return l.end()
}

// Decode implements Message.
func (m *BatchRequest) Decode(body []byte) error {
	c := cursor{b: body}
	*m = BatchRequest{Search: Tiers(c.flags(uint8(tiersKnown), "search")), Flags: c.flags(PrefetchPin, "flags"), Policy: c.policy()}
	m.DeadlineMillis = c.u32("deadline")
	m.MaxOvertaken = c.u32("max overtaken")
	n := c.u16("prompts")
	if n > MaxBatch {
		c.fail("prompts", "%d, use at most %d", n, MaxBatch)
	}
	for range n {
		if c.err != nil {
			break
		}
		var p BatchPrompt
		c.chain(&p.Chain)
		p.LookupID, p.Overtaken = c.str("lookup id"), c.u32("overtaken")
		m.Prompts = append(m.Prompts, p)
	}
	shared := c.prefetchOptions(&m.Ranks, &m.PrefillRate)
	return c.endWith("batch", func(tag uint16, value cursor) bool {
		if tag != optionConfigs {
			return shared(tag, value)
		}
		if m.Configs = value.pairs("request configs"); value.err != nil || value.left() > 0 {
			c.fail("request configs", "an option of %d bytes does not hold what it counts", len(value.b))
		}
		return true
	})
}

// BatchReply is an answer for each prompt, and the order in which to run them
// so that most of their common prefix is computed once.
type BatchReply struct {
	Jobs  []BatchJob
	Order U32s // numbers of the prompts
}

// BatchJob is the answer to one prompt.
type BatchJob struct {
	Status   Status // if not ok, Text says why and there is no job
	Text     string
	Prefetch PrefetchReply
}

// Append implements Message.
func (m *BatchReply) Append(dst []byte) []byte {
	dst = binary.LittleEndian.AppendUint16(dst, uint16(len(m.Jobs)))
	for i := range m.Jobs {
		j := &m.Jobs[i]
		dst = binary.LittleEndian.AppendUint16(dst, uint16(j.Status))
		if j.Status != StatusOK {
			dst = appendStr(dst, j.Text)
			continue
		}
		dst = j.Prefetch.Append(dst)
	}
	return append(dst, m.Order...)
}

// Decode implements Message.
func (m *BatchReply) Decode(body []byte) error {
	c := cursor{b: body}
	*m = BatchReply{}
	n := c.u16("jobs")
	for range n {
		if c.err != nil {
			break
		}
		j := BatchJob{Status: Status(c.u16("status"))}
		if j.Status != StatusOK {
			j.Text = c.str("text")
		} else {
			c.prefetchJob(&j.Prefetch)
		}
		m.Jobs = append(m.Jobs, j)
	}
	m.Order = c.list(uint32(n), 4, "order")
	return c.end("batch reply")
}
