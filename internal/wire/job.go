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

// Flags of a prefetch and a batch.
const (
	PrefetchPin    uint8 = 1 << 0 // pin the matched chunks under the lookup id as they are promoted
	PrefetchShared uint8 = 1 << 1 // every connection of the user may name the job

	prefetchKnown = PrefetchPin | PrefetchShared
)

// PrefetchRequest leases chunks in DRAM and promotes the rest.
type PrefetchRequest struct {
	Chain      Chain
	Search     Tiers
	Flags      uint8
	Policy     WaitPolicy
	LoadMillis uint32 // deadline of the loading; 0 means the configured one
	LookupID   string // the engine's name for its request: for pins and logs
	Shared     Shared
}

// Append implements Message.
func (m *PrefetchRequest) Append(dst []byte) []byte {
	dst = m.Chain.append(dst)
	dst = append(dst, byte(m.Search), m.Flags, byte(m.Policy), 0)
	dst = binary.LittleEndian.AppendUint32(dst, m.LoadMillis)
	return m.Shared.append(appendStr(dst, m.LookupID))
}

// Decode implements Message.
func (m *PrefetchRequest) Decode(body []byte) error {
	c := requestCursor(body)
	c.chain(&m.Chain)
	m.Search, m.Flags, m.Policy, m.LoadMillis = manner(&c)
	m.LookupID = c.str("lookup id")
	m.Shared = Shared{}
	if c.bare() {
		return c.end("prefetch")
	}
	return c.endWith("prefetch", nil, m.Shared.option(true))
}

// manner is how a prefetch or a batch goes about it.
func manner(c *cursor) (search Tiers, flags uint8, policy WaitPolicy, millis uint32) {
	search = Tiers(c.flags(uint8(tiersKnown), "search"))
	flags = c.flags(prefetchKnown, "flags")
	if policy = WaitPolicy(c.u8("policy")); int(policy) >= len(policyNames) {
		c.fail("policy", "%d is unknown", policy)
	}
	c.zero(1, "policy")
	return search, flags, policy, c.u32("load millis")
}

// PrefetchReply is the job that was made, and its first state.
type PrefetchReply struct {
	Job     uint64 // id of the job and of its lease
	Match   Match
	State   JobState
	Advice  *Advice  // nil unless it was asked for
	Grouped *Grouped // as in LookupReply
	Worth   uint32   // as in LookupReply
	Faults  []Fault  // of the request configs
	Missing *Missing // as in LookupReply
}

// Append implements Message.
func (m *PrefetchReply) Append(dst []byte) []byte {
	dst = binary.LittleEndian.AppendUint64(dst, m.Job)
	dst = binary.LittleEndian.AppendUint32(appendMatch(dst, &m.Match), m.Worth)
	dst = m.State.appendRecord(appendZero(dst, 4))
	l := beginOptions(dst, Deadline{})
	if m.Advice != nil {
		at := l.begin(replyAdvice)
		l.dst = appendCount(l.dst, m.Advice.Load)
		l.dst = binary.LittleEndian.AppendUint64(l.dst, m.Advice.Micros)
		l.finish(at)
	}
	l.putFaults(replyFaults, m.Faults)
	m.Grouped.appendOption(&l, replyGrouped)
	m.Missing.appendOption(&l)
	return l.end()
}

// Decode implements Message.
func (m *PrefetchReply) Decode(body []byte) error {
	c := replyCursor(body)
	prefetched(&c, m)
	return c.end("prefetch reply")
}

func prefetched(c *cursor, m *PrefetchReply) {
	m.Job = c.u64("job")
	m.Match = c.match()
	m.Worth = c.u32("worth")
	c.zero(4, "worth")
	stateRecord(c, &m.State)
	m.Advice, m.Grouped, m.Faults, m.Missing = nil, nil, nil, nil
	if c.bare() {
		return
	}
	c.options(func(tag uint16, v *cursor) bool {
		switch tag {
		case replyAdvice:
			m.Advice = &Advice{Load: v.count("advised"), Micros: v.u64("advised time")}
		case replyFaults:
			m.Faults = v.faults()
		case replyGrouped:
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
}

// Advice says where loading stops to be faster than computing.
type Advice struct {
	Load   Count  // of the matched chunks: load so many, and compute the others
	Micros uint64 // from now until all of the prompt is loaded or computed
}

// JobState is how far a job is. It is part of the prefetch reply, and the
// body of pushes and of the replies to wait and release.
type JobState struct {
	Code       Code  // CodeRunning, or why the job is done: CodeOK where all that was matched is ready
	FailedTier Tiers // one, with CodeFailed where it is known
	Ready      Count // the leading run in DRAM under the lease; it only grows
	Tiers      TierCounts
	First      uint32 // chunk number of the first of Refs; of a job with groups their own number
	Refs       Refs
	// Needs are the chunks of each group that the refs of a job with groups are of: all
	// of the first group, of each chunk those of all ranks, then of the next. There
	// are none, and nothing is ready, before all of them are there.
	Needs Needs
}

// Done reports that nothing more comes.
func (m *JobState) Done() bool { return m.Code != CodeRunning }

// Append implements Message.
func (m *JobState) Append(dst []byte) []byte {
	dst = binary.LittleEndian.AppendUint16(dst, uint16(m.Code))
	dst = append(dst, byte(m.FailedTier), 0)
	dst = binary.LittleEndian.AppendUint32(dst, m.First)
	dst = appendTierCounts(appendCount(dst, m.Ready), &m.Tiers)
	l := beginOptions(appendArray(dst, refBytes, m.Refs), Deadline{})
	l.list(replyNeeds, needBytes, m.Needs)
	return l.end()
}

func (m *JobState) appendRecord(dst []byte) []byte {
	at := len(dst)
	return endRecord(m.Append(beginRecord(dst)), at)
}

// Decode implements Message.
func (m *JobState) Decode(body []byte) error {
	c := replyCursor(body)
	c.jobState(m)
	return c.end("job state")
}

func (c *cursor) jobState(m *JobState) {
	m.Code = Code(c.u16("code"))
	m.FailedTier = Tiers(c.u8("failed tier"))
	c.zero(1, "failed tier")
	m.First = c.u32("first ref")
	m.Ready = c.count("ready")
	m.Tiers = c.tierCounts()
	m.Refs = c.array(refBytes, "refs")
	m.Needs = nil
	if c.bare() {
		return
	}
	c.options(func(tag uint16, v *cursor) bool {
		if tag != replyNeeds {
			return false
		}
		m.Needs = Needs(v.array(needBytes, "needs"))
		return true
	})
}

func stateRecord(c *cursor, m *JobState) {
	sub := c.record("state")
	sub.jobState(m)
	c.ended(&sub, "state")
}

// FromUnsent in a WaitRequest asks for the refs not yet sent on the connection.
const FromUnsent = 1<<32 - 1

// WaitRequest asks for the state of a job once enough of it is ready.
type WaitRequest struct {
	Job       uint64
	MinTokens uint64   // ready at least; answered earlier if the job is done
	From      uint32   // chunk number of the first ref wanted, or FromUnsent
	Deadline  Deadline // then answered with what is ready; not given: when the job is done
}

// Append implements Message.
func (m *WaitRequest) Append(dst []byte) []byte {
	dst = binary.LittleEndian.AppendUint64(dst, m.Job)
	dst = binary.LittleEndian.AppendUint64(dst, m.MinTokens)
	dst = binary.LittleEndian.AppendUint32(dst, m.From)
	return appendDeadline(appendZero(dst, 4), m.Deadline)
}

// Decode implements Message.
func (m *WaitRequest) Decode(body []byte) error {
	c := requestCursor(body)
	*m = WaitRequest{Job: c.u64("job"), MinTokens: c.u64("min tokens"), From: c.u32("from")}
	c.zero(4, "from")
	return c.endRequest("wait", &m.Deadline)
}

// IDRequest names a job or fill, or a request that is to be cancelled: the body of
// release, renew and cancel.
type IDRequest struct{ ID uint64 }

// Append implements Message.
func (m *IDRequest) Append(dst []byte) []byte {
	return noOptions(binary.LittleEndian.AppendUint64(dst, m.ID))
}

// Decode implements Message.
func (m *IDRequest) Decode(body []byte) error {
	c := requestCursor(body)
	m.ID = c.u64("id")
	return c.endRequest("request", nil)
}

// CodeReply is the reply to cancel, and the push about a fill.
type CodeReply struct{ Code Code }

// Append implements Message.
func (m *CodeReply) Append(dst []byte) []byte { return noOptions(appendCode(dst, m.Code, 8)) }

// Decode implements Message.
func (m *CodeReply) Decode(body []byte) error {
	c := replyCursor(body)
	m.Code = c.code(8, "code")
	return c.endReply("reply")
}

// ReleaseReply says whether the bytes read under the lease are good, and how far the
// job was; it has no refs.
type ReleaseReply struct {
	Code  Code // CodeOK or CodeRevoked
	State JobState
}

// Append implements Message.
func (m *ReleaseReply) Append(dst []byte) []byte {
	return noOptions(m.State.appendRecord(appendCode(dst, m.Code, 8)))
}

// Decode implements Message.
func (m *ReleaseReply) Decode(body []byte) error {
	c := replyCursor(body)
	m.Code = c.code(8, "code")
	stateRecord(&c, &m.State)
	return c.endReply("release reply")
}

// RenewReply says how long the lease or fill holds now.
type RenewReply struct{ HoldsMillis uint32 }

// Append implements Message.
func (m *RenewReply) Append(dst []byte) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, m.HoldsMillis)
	return noOptions(appendZero(dst, 4))
}

// Decode implements Message.
func (m *RenewReply) Decode(body []byte) error {
	c := replyCursor(body)
	m.HoldsMillis = c.u32("holds")
	c.zero(4, "holds")
	return c.endReply("renew reply")
}
