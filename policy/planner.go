package policy

// Planner is a policy that learns from whole requests and may refuse an
// entry. An owner that finds its policy to be one calls Observe for every
// request, and then neither Touch nor Miss for the chunks of that request;
// Add, Remove, Evict and Allow stay as they are. An owner that never calls
// Observe may drive a Planner as any other Policy: each Miss and Touch is then
// a request of one chunk.
type Planner interface {
	Policy
	Learner
	// Observe is one request, before anything is added for it. It keeps no
	// reference to r.Chain. Work is proportional to the chain, but for the
	// training that every few hundred requests do, unless that is deferred.
	Observe(r Request)
	// Advise changes the hint of the last request for chain, from the chunk
	// `from` on. It is no use of the chunks.
	Advise(chain []uint64, h Hint, from int)
	// Admit reports whether a chunk is worth more than the entry that it would
	// displace. parent is the hash before it, which stays in any case; 0 for
	// none. A chunk of no request observed counts as new.
	Admit(hash, parent uint64) bool
	// Seen reports whether a chunk was asked for before the last request for
	// it, as far as the policy remembers.
	Seen(hash uint64) bool
}

// Learner is the part of a Planner that learns. A training computes anew, from
// all requests observed so far, how much each kind of chunk is worth. It runs
// within Observe, or in steps of its own.
type Learner interface {
	// Defer leaves the trainings to the owner, who takes a Training where one
	// is due. It cannot be undone. Without it equal calls have equal victims.
	Defer()
	// Due reports whether a training is due. Only a deferred one ever is.
	Due() bool
	// Training returns the training that is due, or nil. One ends before the
	// next one is asked for.
	Training() Training
	// MarshalBinary and UnmarshalBinary carry the observations over a restart,
	// but not which chunks there are. UnmarshalBinary changes nothing if it
	// fails.
	MarshalBinary() ([]byte, error)
	UnmarshalBinary(data []byte) error
}

// Training is a training in steps, so that no call of the policy waits for all
// of it: Sample until there is no more, Fit, Apply.
type Training interface {
	// Sample counts up to 4,096 of the chunks that are watched, and reports
	// whether there are more. It is serialised with the calls of the policy.
	Sample() bool
	// Fit computes the new ranking from the counts alone: calls of the policy
	// may run meanwhile.
	Fit()
	// Apply gives the policy the new ranking. It is serialised with the calls
	// of the policy.
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
	// PrefillDepth is how deep in a prompt a token takes twice as long to compute as the
	// first one does; 0 = the cost of computing a chunk again counts for nothing.
	PrefillDepth int
	// Beside says that the chunks are no prompt: they are what some of the last prompt that
	// was observed needs besides, the windows and states of a hybrid model. Each is used as
	// the end of that prompt is, and no time passes. Tokens is how far into the prompt they
	// are needed.
	Beside bool
}

// Hint is a client's advice about the future of a chunk. The policy learns how
// far to trust each hint as it learns everything else: a client that is always
// wrong changes nothing in the long run.
type Hint uint8

// The hints.
const (
	NoHint       Hint = iota
	Done              // the client expects no further request for it
	Continues         // the client expects another request for it soon
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
