package policy

// Planner is a policy that learns from whole requests and may refuse an
// entry. An owner that finds its policy to be one announces every request and
// then calls neither Touch nor Admit for what it announced; Add, Remove, Evict
// and Allow stay as they are. One that announces nothing may drive a Planner
// as any other Policy: each Admit and Touch is then a request of one chunk.
type Planner interface {
	Policy
	// Request announces a prompt before anything is added for it. It keeps no
	// reference to r.Chain. Work is proportional to the chain, but for the
	// learning that every few hundred requests do, unless that is deferred.
	Request(r Request)
	// Advise changes the hint of what the last request for chain asked for,
	// from the chunk `from` on. It is no use of the chunks.
	Advise(chain []uint64, h Hint, from int)
	// Defer leaves the learning to the owner, who takes a Lesson where one is
	// due. It is for good. Without it equal calls have equal victims.
	Defer()
	// Due reports whether a Lesson is.
	Due() bool
	// Lesson returns the learning that is due, or nil. It is over before the
	// next one is asked for.
	Lesson() Lesson
	// Worth reports whether a chunk that would have to displace another is
	// worth more than that one. parent is the hash before it, which stays in
	// any case; 0 for none. A chunk that nobody announced counts as new.
	Worth(hash, parent uint64) bool
	// Seen reports whether a chunk was asked for before the last request for
	// it, as far as that is remembered.
	Seen(hash uint64) bool
	// MarshalBinary and UnmarshalBinary carry what was learned over a restart,
	// but not which chunks there are. UnmarshalBinary changes nothing if it
	// fails.
	MarshalBinary() ([]byte, error)
	UnmarshalBinary(data []byte) error
}

// Lesson is learning in steps, so that nobody waits for all of it.
type Lesson interface {
	// Look takes in some of what there is to be seen, some 4,096 chunks, and
	// reports whether there is more. It is a call like those of the policy.
	Look() bool
	// Think uses nothing of the policy: the owner need not keep others away.
	Think()
	// Apply is a call like those of the policy, and ends the lesson.
	Apply()
}

// Request is one prompt. How much of its chain is resident, and how much is
// known from before, the policy sees for itself.
type Request struct {
	Chain       []uint64 // Meta.Hash of each chunk, first to last; cut where one repeats
	ChunkTokens int      // tokens in a whole chunk; < 1 counts as 512
	Tokens      int      // of the whole prompt; at least those of the chain are assumed
	// Hint is what the client says about the chunks from HintFrom on.
	Hint     Hint
	HintFrom int
}

// Hint is advice about what becomes of a chunk. What it is worth is learned
// like everything else: a client that is always wrong changes nothing in the
// long run.
type Hint uint8

// The hints.
const (
	NoHint       Hint = iota
	Done              // nobody is expected to ask for it again
	Continues         // it will be asked for soon
	BriefAnswer       // the answer to its prompt will have 32 tokens at most
	MiddleAnswer      // 256 at most
	LongAnswer        // more
	hints
)

// AnswerHint is the hint that the answer to a prompt will have so many tokens.
func AnswerHint(tokens int) Hint {
	switch {
	case tokens <= briefAnswer:
		return BriefAnswer
	case tokens <= middleAnswer:
		return MiddleAnswer
	}
	return LongAnswer
}

const (
	briefAnswer  = 32
	middleAnswer = 256
)
