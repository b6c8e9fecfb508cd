package wire

import "encoding/binary"

// NoAction as the action of a Fault says that a config is at fault.
const NoAction = 1<<32 - 1

// MaxFaults is how many faults a reply tells.
const MaxFaults = 32

// Fault is one of the things that a client said of the future, in request configs,
// and that did not count. All else that it said did.
type Fault struct {
	Code   Code
	Action uint32 // number of the action in the envelope of kv_hints, or NoAction
	Name   string // action_id of the action, or name of the config
	Text   string // what is wrong and what to do about it, for people
}

func appendFaults(dst []byte, fs []Fault) []byte {
	dst = appendZero(binary.LittleEndian.AppendUint32(dst, uint32(len(fs))), 4)
	for i := range fs {
		f := &fs[i]
		at := len(dst)
		dst = appendCode(beginRecord(dst), f.Code, 4)
		dst = binary.LittleEndian.AppendUint32(dst, f.Action)
		dst = endRecord(appendStr(appendStr(dst, f.Name), f.Text), at)
	}
	return dst
}

func (c *cursor) faults() (fs []Fault) {
	c.listed("hints", func(sub *cursor) {
		fs = append(fs, Fault{
			Code: sub.code(4, "code"), Action: sub.u32("action"), Name: sub.str("name"), Text: sub.text("text"),
		})
	})
	return fs
}

// putFaults appends an option of faults, unless there are none.
func (l *optionList) putFaults(tag uint16, fs []Fault) {
	if len(fs) == 0 {
		return
	}
	at := l.begin(tag)
	l.dst = appendFaults(l.dst, fs)
	l.finish(at)
}

// HintRequest says something of the future of a prompt, without asking for it.
type HintRequest struct {
	Chain    Chain  // FormNone with a lookup id, or for the session that Configs name
	LookupID string // of a prefetch of the same user, whose prompt is meant; empty: Chain is
	Ranks    U32s   // handles of further spaces
	Configs  Pairs  // as of a prefetch
}

// Append implements Message.
func (m *HintRequest) Append(dst []byte) []byte {
	dst = appendStr(m.Chain.append(dst), m.LookupID)
	s := Shared{Ranks: m.Ranks, Configs: m.Configs}
	return s.append(dst)
}

// Decode implements Message.
func (m *HintRequest) Decode(body []byte) error {
	c := requestCursor(body)
	*m = HintRequest{}
	c.chain(&m.Chain)
	m.LookupID = c.str("lookup id")
	if c.err == nil && m.LookupID != "" && m.Chain.Form != FormNone {
		c.fail("lookup id", "%q with a chain of form %s: send a chain, or a lookup id and form none", m.LookupID, m.Chain.Form)
	}
	var s Shared
	known := s.option(true)
	err := c.endWith("hint", nil, func(tag uint16, v *cursor) bool {
		return (tag == tagRanks || tag == tagConfigs) && known(tag, v)
	})
	m.Ranks, m.Configs = s.Ranks, s.Configs
	return err
}

// HintReply is the outcome.
type HintReply struct {
	Retained Count // chunks that the claims of this request cover now
	Faults   []Fault
}

// Append implements Message.
func (m *HintReply) Append(dst []byte) []byte {
	l := beginOptions(appendCount(dst, m.Retained), Deadline{})
	l.putFaults(replyHints, m.Faults)
	return l.end()
}

// Decode implements Message.
func (m *HintReply) Decode(body []byte) error {
	c := replyCursor(body)
	*m = HintReply{Retained: c.count("retained")}
	c.options(func(tag uint16, v *cursor) bool {
		if tag != replyHints {
			return false
		}
		m.Faults = v.faults()
		return true
	})
	return c.end("hint reply")
}
