package wire

import "encoding/binary"

// WaitPolicy says when a job stops loading.
type WaitPolicy uint8

// The policies.
const (
	PolicyDefault      WaitPolicy = 0 // as the daemon is configured
	PolicyBestEffort   WaitPolicy = 1 // the first wait answers with what is ready and ends the job
	PolicyWaitComplete WaitPolicy = 2 // when all that was matched is ready, or a chunk fails
	PolicyTimeout      WaitPolicy = 3 // at the deadline
)

func (p WaitPolicy) String() string { return name(policyNames[:], uint16(p), "policy") }

var policyNames = [...]string{"default", "best_effort", "wait_complete", "timeout"}

// PrefetchPin asks to pin the matched chunks under the lookup id as they are promoted.
const PrefetchPin uint8 = 1 << 0

// PrefetchRequest leases chunks in DRAM and promotes the rest.
type PrefetchRequest struct {
	Chain          Chain
	Search         Tiers
	Flags          uint8
	Policy         WaitPolicy
	DeadlineMillis uint32 // from receipt; 0 means the configured one
	LookupID       string // the engine's name for its request: for pins and logs
	Configs        Pairs  // the engine's request_configs, passed through
	Ranks          U32s   // handles of further spaces that must have every chunk
	PrefillRate    uint32 // tokens a second that the caller computes; 0 asks for no advice
}

// Append implements Message.
func (m *PrefetchRequest) Append(dst []byte) []byte {
	dst = m.Chain.append(dst)
	dst = append(dst, byte(m.Search), m.Flags, byte(m.Policy))
	dst = binary.LittleEndian.AppendUint32(dst, m.DeadlineMillis)
	dst = appendStr(dst, m.LookupID)
	dst = binary.LittleEndian.AppendUint16(dst, uint16(m.Configs.Len()))
	return appendPrefetchOptions(append(dst, m.Configs...), m.Ranks, m.PrefillRate)
}

// Decode implements Message.
func (m *PrefetchRequest) Decode(body []byte) error {
	c := cursor{b: body}
	c.chain(&m.Chain)
	m.Search = Tiers(c.flags(uint8(tiersKnown), "search"))
	m.Flags = c.flags(PrefetchPin, "flags")
	m.Policy = c.policy()
	m.DeadlineMillis = c.u32("deadline")
	m.LookupID = c.str("lookup id")
	m.Configs = c.pairs("request configs")
	m.Ranks, m.PrefillRate = nil, 0
	return c.endWith("prefetch", c.prefetchOptions(&m.Ranks, &m.PrefillRate))
}

func (c *cursor) policy() WaitPolicy {
	p := WaitPolicy(c.u8("policy"))
	if int(p) >= len(policyNames) {
		c.fail("policy", "%d is unknown", p)
	}
	return p
}

// PrefetchReply is the job that was made, and its first state.
type PrefetchReply struct {
	Job    uint64 // id of the job and of its lease
	Match  Match
	State  JobState
	Advice *Advice // nil unless it was asked for
	Worth  uint32  // as in LookupReply
}

// Append implements Message.
func (m *PrefetchReply) Append(dst []byte) []byte {
	dst = binary.LittleEndian.AppendUint64(dst, m.Job)
	dst = m.State.Append(appendMatch(dst, &m.Match))
	if dst = appendBool(dst, m.Advice != nil); m.Advice != nil {
		dst = m.Advice.append(dst)
	}
	return binary.LittleEndian.AppendUint32(dst, m.Worth)
}

// Decode implements Message.
func (m *PrefetchReply) Decode(body []byte) error {
	c := cursor{b: body}
	c.prefetchJob(m)
	return c.end("prefetch reply")
}

func (c *cursor) prefetchJob(m *PrefetchReply) {
	m.Job = c.u64("job")
	m.Match = c.match()
	c.jobState(&m.State)
	if m.Advice = nil; c.bool("advised") {
		m.Advice = &Advice{Load: c.count("advised"), Micros: c.u64("advised time")}
	}
	m.Worth = c.u32("worth")
}

// Advice says where loading stops to be faster than computing.
type Advice struct {
	Load   Count  // of the matched chunks: load so many, and compute the others
	Micros uint64 // from now until all of the prompt is loaded or computed
}

func (a *Advice) append(dst []byte) []byte {
	return binary.LittleEndian.AppendUint64(appendCount(dst, a.Load), a.Micros)
}

// JobState is how far a job is. It is part of the prefetch reply, and the
// body of pushes and of the replies to wait and cancel.
type JobState struct {
	Done       bool
	Reason     Reason
	FailedTier string // with ReasonFailed
	Ready      Count  // the leading run in DRAM under the lease; it only grows
	Tiers      TierCounts
	First      uint32 // chunk number of the first of Refs
	Refs       Refs
}

// Append implements Message.
func (m *JobState) Append(dst []byte) []byte {
	dst = append(appendBool(dst, m.Done), byte(m.Reason))
	dst = appendStr(dst, m.FailedTier)
	dst = appendCount(dst, m.Ready)
	dst = appendTierCounts(dst, &m.Tiers)
	dst = binary.LittleEndian.AppendUint32(dst, m.First)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(m.Refs.Len()))
	return append(dst, m.Refs...)
}

// Decode implements Message.
func (m *JobState) Decode(body []byte) error {
	c := cursor{b: body}
	c.jobState(m)
	return c.end("job state")
}

func (c *cursor) jobState(m *JobState) {
	m.Done = c.bool("done")
	m.Reason = Reason(c.u8("reason"))
	m.FailedTier = c.str("failed tier")
	m.Ready = c.count("ready")
	m.Tiers = c.tierCounts()
	m.First = c.u32("first ref")
	m.Refs = c.list(c.u32("refs"), refBytes, "refs")
}

// FromUnsent in a WaitRequest asks for the refs not yet sent on the connection.
const FromUnsent = 1<<32 - 1

// WaitRequest asks for the state of a job once enough of it is ready.
type WaitRequest struct {
	Job           uint64
	MinTokens     uint64 // ready at least; answered earlier if the job is done
	TimeoutMillis uint32 // then answered with what is; 0 answers at once
	From          uint32 // chunk number of the first ref wanted, or FromUnsent
}

// Append implements Message.
func (m *WaitRequest) Append(dst []byte) []byte {
	dst = binary.LittleEndian.AppendUint64(dst, m.Job)
	dst = binary.LittleEndian.AppendUint64(dst, m.MinTokens)
	dst = binary.LittleEndian.AppendUint32(dst, m.TimeoutMillis)
	return appendOptions(binary.LittleEndian.AppendUint32(dst, m.From))
}

// Decode implements Message.
func (m *WaitRequest) Decode(body []byte) error {
	c := cursor{b: body}
	*m = WaitRequest{Job: c.u64("job"), MinTokens: c.u64("min tokens"), TimeoutMillis: c.u32("timeout"), From: c.u32("from")}
	return c.endRequest("wait")
}

// JobRequest names a job: the body of cancel, release and renew.
type JobRequest struct{ Job uint64 }

// Append implements Message.
func (m *JobRequest) Append(dst []byte) []byte {
	return appendOptions(binary.LittleEndian.AppendUint64(dst, m.Job))
}

// Decode implements Message.
func (m *JobRequest) Decode(body []byte) error {
	c := cursor{b: body}
	m.Job = c.u64("job")
	return c.endRequest("job")
}

// ReleaseReply says whether the bytes read under the lease are good.
type ReleaseReply struct{ Outcome Outcome }

// Append implements Message.
func (m *ReleaseReply) Append(dst []byte) []byte { return append(dst, byte(m.Outcome)) }

// Decode implements Message.
func (m *ReleaseReply) Decode(body []byte) error {
	c := cursor{b: body}
	m.Outcome = Outcome(c.u8("outcome"))
	return c.end("release reply")
}

// RenewReply says how long the lease holds now.
type RenewReply struct{ RemainingMillis uint32 }

// Append implements Message.
func (m *RenewReply) Append(dst []byte) []byte {
	return binary.LittleEndian.AppendUint32(dst, m.RemainingMillis)
}

// Decode implements Message.
func (m *RenewReply) Decode(body []byte) error {
	c := cursor{b: body}
	m.RemainingMillis = c.u32("remaining")
	return c.end("renew reply")
}
