package wire

import "encoding/binary"

// MaxBatch is the most prompts of one batch.
const MaxBatch = 1024

// BatchRequest is a prefetch for each of many prompts, in the order in which
// they arrived. What names no prompt holds for all.
type BatchRequest struct {
	Search       Tiers
	Flags        uint8 // as of a prefetch
	Policy       WaitPolicy
	LoadMillis   uint32
	MaxOvertaken uint32 // how many later prompts may run before one of the batch
	Prompts      []BatchPrompt
	Shared       Shared // as of a prefetch
}

// BatchPrompt is one prompt of a batch.
type BatchPrompt struct {
	Chain     Chain
	LookupID  string
	Overtaken uint32 // later prompts that were run before this one already
}

// Append implements Message.
func (m *BatchRequest) Append(dst []byte) []byte {
	dst = append(dst, byte(m.Search), m.Flags, byte(m.Policy), 0)
	dst = binary.LittleEndian.AppendUint32(dst, m.LoadMillis)
	dst = appendZero(binary.LittleEndian.AppendUint32(dst, m.MaxOvertaken), 4)
	dst = appendZero(binary.LittleEndian.AppendUint32(dst, uint32(len(m.Prompts))), 4)
	for i := range m.Prompts {
		p := &m.Prompts[i]
		at := len(dst)
		dst = p.Chain.append(beginRecord(dst))
		dst = appendZero(binary.LittleEndian.AppendUint32(dst, p.Overtaken), 4)
		dst = endRecord(appendStr(dst, p.LookupID), at)
	}
	return m.Shared.append(dst)
}

// Decode implements Message.
func (m *BatchRequest) Decode(body []byte) error {
	c := requestCursor(body)
	*m = BatchRequest{}
	m.Search, m.Flags, m.Policy, m.LoadMillis = manner(&c)
	m.MaxOvertaken = c.u32("max overtaken")
	c.zero(4, "max overtaken")
	c.listed("prompts", func(sub *cursor) {
		var p BatchPrompt
		sub.chain(&p.Chain)
		p.Overtaken = sub.u32("overtaken")
		sub.zero(4, "overtaken")
		p.LookupID = sub.str("lookup id")
		m.Prompts = append(m.Prompts, p)
		sub.atMost(len(m.Prompts), MaxBatch, "prompts")
	})
	return c.endWith("batch", nil, m.Shared.option(true))
}

// BatchReply is an answer for each prompt, and the order in which to run them
// so that most of their common prefix is computed once.
type BatchReply struct {
	Jobs  []BatchJob
	Order U32s // numbers of the prompts
}

// BatchJob is the answer to one prompt.
type BatchJob struct {
	Code     Code // if not ok, Text says why and there is no job
	Text     string
	Prefetch PrefetchReply
}

// Append implements Message.
func (m *BatchReply) Append(dst []byte) []byte {
	dst = appendZero(binary.LittleEndian.AppendUint32(dst, uint32(len(m.Jobs))), 4)
	for i := range m.Jobs {
		j := &m.Jobs[i]
		at := len(dst)
		dst = appendStr(appendCode(beginRecord(dst), j.Code, 8), j.Text)
		inner := len(dst)
		if dst = beginRecord(dst); j.Code == CodeOK {
			dst = j.Prefetch.Append(dst)
		}
		dst = endRecord(endRecord(dst, inner), at)
	}
	return noOptions(appendArray(dst, 4, m.Order))
}

// Decode implements Message.
func (m *BatchReply) Decode(body []byte) error {
	c := replyCursor(body)
	*m = BatchReply{}
	c.listed("jobs", func(sub *cursor) {
		j := BatchJob{Code: sub.code(8, "code"), Text: sub.text("text")}
		if inner := sub.record("reply"); j.Code == CodeOK {
			prefetched(&inner, &j.Prefetch)
			sub.ended(&inner, "reply")
		}
		m.Jobs = append(m.Jobs, j)
	})
	if m.Order = c.numbers(4, "order"); c.err == nil && m.Order.Len() != len(m.Jobs) {
		c.fail("order", "%d numbers for %d jobs", m.Order.Len(), len(m.Jobs))
	}
	return c.endReply("batch reply")
}
