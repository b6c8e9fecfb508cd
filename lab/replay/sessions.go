package replay

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
)

// maxSessionBytes bounds one line of a trace of sessions: a day of an agent
// has some megabytes.
const maxSessionBytes = 64 << 20

// maxDepth bounds how deep sub-agents may be in each other.
const maxDepth = 8

// wireSession is one line of a trace of sessions.
type wireSession struct {
	BlockTokens *int    `json:"block_size"`
	Scope       string  `json:"hash_id_scope"`
	Start       float64 `json:"start"`
	wireAgent
}

// wireAgent is what a session and a sub-agent in it have in common.
type wireAgent struct {
	Tools    int         `json:"tool_tokens"`
	System   int         `json:"system_tokens"`
	Requests *[]wireTurn `json:"requests"`
}

// wireTurn is a request of a session, or a sub-agent with requests of its own.
type wireTurn struct {
	At    *float64  `json:"t"` // seconds since the start of the session or the sub-agent
	Type  string    `json:"type"`
	Model string    `json:"model"`
	Input *int      `json:"in"`
	Out   int       `json:"out"`
	IDs   *[]uint64 `json:"hash_ids"`
	wireAgent
}

// isSession reports whether a line is of a trace of sessions.
func isSession(line []byte) bool {
	if !bytes.Contains(line, []byte(`"requests"`)) {
		return false
	}
	var w struct {
		Requests json.RawMessage `json:"requests"`
	}
	return json.Unmarshal(line, &w) == nil && w.Requests != nil
}

// sessions numbers the blocks of sessions, which each have ids of their own.
type sessions struct {
	blockTokens int
	blocks      uint64 // numbers given
	agents      int    // sessions and sub-agents so far
	shared      map[sharedBlock]uint64
	global      map[uint64]uint64 // ids of sessions whose ids are everybody's
}

// sharedBlock is a block of what sessions of equal tools, system prompt and
// model begin with.
type sharedBlock struct {
	model         string
	tools, system int
	at            int
}

func newSessions(blockTokens int) *sessions {
	return &sessions{blockTokens: blockTokens, shared: make(map[sharedBlock]uint64), global: make(map[uint64]uint64)}
}

// session is one of them while it is read.
type session struct {
	*sessions
	per    int // ids in a block
	unit   int // tokens of an id
	number map[uint64]uint64
	joined map[sharedBlock]uint64 // the id that stands there in this session
	local  bool
	out    []Request
}

// parse returns the requests of a line, in its order.
func (s *sessions) parse(line []byte) ([]Request, error) {
	if len(line) > maxSessionBytes {
		return nil, fmt.Errorf("the line has more than %d bytes", maxSessionBytes)
	}
	var w wireSession
	if err := json.Unmarshal(line, &w); err != nil {
		return nil, malformed(err)
	}
	switch {
	case w.Requests == nil:
		return nil, errors.New(`"requests" is missing, and the trace began with a session`)
	case w.BlockTokens == nil:
		return nil, errors.New(`"block_size" is missing`)
	case *w.BlockTokens < 1 || s.blockTokens%*w.BlockTokens != 0:
		return nil, fmt.Errorf("block_size %d: blocks of %d tokens are not made of these; choose another --block-size", *w.BlockTokens, s.blockTokens)
	case w.Scope != "" && w.Scope != "local" && w.Scope != "global":
		return nil, fmt.Errorf("hash_id_scope %q: want local or global", w.Scope)
	case !plausible(w.Start):
		return nil, fmt.Errorf("start %v: want seconds, from 0 on", w.Start)
	}
	in := session{
		sessions: s, per: s.blockTokens / *w.BlockTokens, unit: *w.BlockTokens,
		number: make(map[uint64]uint64), joined: make(map[sharedBlock]uint64), local: w.Scope != "global",
	}
	if !in.local {
		in.number = s.global
	}
	err := in.agent(&w.wireAgent, w.Start, 0, "")
	return in.out, err
}

// plausible reports whether a time in seconds fits into a trace.
func plausible(seconds float64) bool { return seconds >= 0 && seconds < math.MaxInt32 }

// agent adds the requests of a session, or of a sub-agent in it.
func (s *session) agent(a *wireAgent, start float64, depth int, path string) error {
	if a.Tools < 0 || a.System < 0 {
		return fmt.Errorf("%stool_tokens and system_tokens must not be negative", path)
	}
	s.agents++
	number := s.agents
	for i := range *a.Requests {
		t := &(*a.Requests)[i]
		where := fmt.Sprintf("%srequest %d: ", path, i+1)
		switch {
		case t.At == nil:
			return fmt.Errorf(`%s"t" is missing`, where)
		case !plausible(*t.At) || !plausible(start+*t.At):
			return fmt.Errorf("%st %v: want seconds, from 0 on", where, *t.At)
		case t.Requests != nil && depth == maxDepth:
			return fmt.Errorf("%smore than %d sub-agents in each other", where, maxDepth)
		case t.Requests != nil:
			if err := s.agent(&t.wireAgent, start+*t.At, depth+1, where); err != nil {
				return err
			}
			continue
		}
		if err := s.turn(a, t, start+*t.At, number); err != nil {
			return fmt.Errorf("%s%w", where, err)
		}
	}
	return nil
}

// turn adds one request.
func (s *session) turn(a *wireAgent, t *wireTurn, at float64, agent int) error {
	switch {
	case t.Input == nil:
		return errors.New(`"in" is missing`)
	case t.IDs == nil:
		return errors.New(`"hash_ids" is missing`)
	case *t.Input < 0 || *t.Input > math.MaxUint32 || t.Out < 0:
		return fmt.Errorf("in %d, out %d: want numbers of tokens", *t.Input, t.Out)
	}
	ids, whole := *t.IDs, *t.Input/s.unit
	if n := len(ids); n < whole || (n-1)*s.unit >= *t.Input && n > 0 {
		return fmt.Errorf("%d hash_ids, but in %d is %d blocks of %d tokens", n, *t.Input, whole, s.unit)
	}
	if len(ids) == 0 {
		return nil // shorter than a block: it has nothing that could be kept
	}
	r := Request{
		Millis: int64(at * 1000), InputTokens: min(*t.Input, len(ids)*s.unit), OutputTokens: t.Out, Session: agent,
		BlockIDs: make([]uint64, 0, (len(ids)+s.per-1)/s.per),
	}
	prompt := sharedBlock{t.Model, a.Tools, a.System, 0}
	common := (a.Tools + a.System) / s.blockTokens
	for end := s.per; end < len(ids)+s.per; end += s.per {
		id := ids[min(end, len(ids))-1]
		prompt.at = end / s.per
		r.BlockIDs = append(r.BlockIDs, s.block(id, prompt, end <= len(ids) && prompt.at <= common))
	}
	s.out = append(s.out, r)
	return nil
}

// block returns the number of the block that ends with an id. Where sessions
// begin alike the first id of a session that stands there is theirs in common.
func (s *session) block(id uint64, at sharedBlock, common bool) uint64 {
	if n, known := s.number[id]; known {
		return n
	}
	if common = common && s.local; common {
		if own, taken := s.joined[at]; taken {
			common = own == id
		} else if up := at; up.at > 1 {
			up.at--
			_, common = s.joined[up]
		}
	}
	n, known := s.shared[at]
	if !common || !known {
		n = s.blocks
		s.blocks++
	}
	if common {
		s.shared[at], s.joined[at] = n, id
	}
	s.number[id] = n
	return n
}
