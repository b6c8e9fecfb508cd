package ledger

import (
	"errors"
	"sync"

	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/policy"
)

// Request is a prompt as a policy that plans wants to know it.
type Request struct {
	Space       key.SpaceID
	Hashes      []key.Hash // of its chunks, first to last; a policy sees the first 4,096
	ChunkTokens int        // tokens in a whole chunk
	Tokens      int        // of the prompt
	// Hint is about the chunks from HintFrom on; Done and Continues only about
	// those that no other prompt here goes on from.
	Hint     policy.Hint
	HintFrom int
	// Advice says that the request was announced before, and only its hint is
	// new.
	Advice bool
	// PrefillDepth is how many tokens into a prompt one takes twice as long to compute as
	// the first; 0 = chunks are ranked by their tokens alone.
	PrefillDepth int
	// Beside says that the chunks are windows or states of the last prompt that was observed;
	// see policy.Request.
	Beside bool
}

// planner is what a scope asks of a policy that plans.
type planner interface {
	Observe(policy.Request)
	Advise(chain []uint64, h policy.Hint, from int)
	Admit(hash, parent uint64) bool
	Seen(hash uint64) bool
}

// Planning tells a policy that plans of requests, asks it, and has it learn: see
// policy.Planner.
type Planning struct {
	mu       *locked
	learning sync.Mutex // held by the Train at work, before mu
	chain    []uint64   // of the request being announced; mu guards it
}

// Planning is how to tell and to ask a policy that plans.
func (l *Ledger) Planning() *Planning { return &l.planning }

// Plans reports whether the policy wants to be told of requests.
func (p *Planning) Plans() bool { return p.mu.book.policies.plans.Load() }

// Observe tells a policy that plans of a prompt, before anything of it is
// stored: under such a policy this is the use of its chunks, and neither a
// touch nor a new chunk is another one. It reports whether there is something
// to Train. Policies that do not plan are not told.
func (p *Planning) Observe(r *Request) (learn bool) {
	if !p.Plans() {
		return false
	}
	b := p.mu.lock()
	defer p.mu.unlock()
	p.chain = p.chain[:0]
	for _, h := range r.Hashes[:min(len(r.Hashes), maxRound)] {
		p.chain = append(p.chain, b.hashIn(r.Space, h))
	}
	told := policy.Request{
		Chain: p.chain, ChunkTokens: r.ChunkTokens, Tokens: r.Tokens, Hint: r.Hint, HintFrom: r.HintFrom,
		PrefillDepth: r.PrefillDepth, Beside: r.Beside,
	}
	if r.Hint == policy.Done || r.Hint == policy.Continues {
		told.HintFrom = max(told.HintFrom, b.ownFrom(r.Space, r.Hashes[:len(p.chain)]))
	}
	learn = b.policies.scopes[everything].observe(told, r.Advice)
	if q := b.spaces.quotas[r.Space]; q != everything {
		learn = b.policies.scopes[q].observe(told, r.Advice) || learn
	}
	return learn
}

// observe reports whether a training is due.
func (r *scope) observe(p policy.Request, advice bool) bool {
	if r.planner == nil {
		return false
	}
	if advice {
		r.planner.Advise(p.Chain, p.Hint, p.HintFrom)
		return false
	}
	r.planner.Observe(p)
	learner, ok := r.policy.(policy.Planner)
	return ok && learner.Due()
}

// Admit returns how many of the chunks hs of a space, one after the other behind
// the chunk parent and size bytes each, are worth storing: as many as there is
// room for in the tier, and then those that a policy that plans finds worth more
// than the entries that would have to go for them. That is never less than the
// policy will admit when they are stored one by one, if nothing else happens.
// Without such a policy it is all. With twice, a chunk beyond the room must also
// have been asked for twice.
func (p *Planning) Admit(space key.SpaceID, parent key.Hash, hs []key.Hash, size uint32, room int, twice bool) int {
	if !p.Plans() {
		return len(hs)
	}
	b := p.mu.lock()
	defer p.mu.unlock()
	asked, rooms := []*scope{&b.policies.scopes[everything]}, []int{room}
	if q := b.spaces.quotas[space]; q != everything {
		r := &b.policies.scopes[q]
		asked, rooms = append(asked, r), append(rooms, int((r.quota.QuotaBytes-r.quota.UsedBytes)/b.sizeOf(max(size, 1))))
	}
	up := uint64(0)
	if parent != (key.Hash{}) {
		up = b.hashIn(space, parent)
	}
	for n, h := range hs[:min(len(hs), maxRound)] {
		hash := b.hashIn(space, h)
		for i, r := range asked {
			if n >= rooms[i] && r.planner != nil && !(r.planner.Admit(hash, up) && (!twice || r.planner.Seen(hash))) {
				return n
			}
		}
		up = hash
	}
	return len(hs)
}

// Train runs the trainings that are due, if Options.DeferTraining leaves them to
// it. It holds the ledger's lock for one step of a training at a time.
func (p *Planning) Train() {
	p.learning.Lock()
	defer p.learning.Unlock()
	for r, more := 0, true; more; r++ { // a SetQuotas meanwhile costs a training
		var due policy.Training
		p.mu.round(func(b *book) {
			if more = r < len(b.policies.scopes); more {
				if learner, ok := b.policies.scopes[r].policy.(policy.Planner); ok {
					due = learner.Training()
				}
			}
		})
		if due == nil {
			continue
		}
		for again := true; again; {
			p.mu.round(func(*book) { again = due.Sample() })
		}
		due.Fit()
		p.mu.round(func(*book) { due.Apply() })
	}
}

// Save returns what the policy has learned, to be kept over a restart;
// nil if it does not learn.
func (p *Planning) Save() ([]byte, error) {
	b := p.mu.lock()
	defer p.mu.unlock()
	if learner, ok := b.policies.scopes[everything].policy.(policy.Planner); ok {
		return learner.MarshalBinary()
	}
	return nil, nil
}

// ErrNoLearner is returned by Load under a policy that does not learn.
var ErrNoLearner = errors.New("ledger: the policy does not learn")

// Load gives the policy what an earlier Save returned. An error
// changes nothing of the policy.
func (p *Planning) Load(data []byte) error {
	b := p.mu.lock()
	defer p.mu.unlock()
	if learner, ok := b.policies.scopes[everything].policy.(policy.Planner); ok {
		return learner.UnmarshalBinary(data)
	}
	return ErrNoLearner
}
