package hint

import (
	"crypto/sha256"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kvstored/kvstored/internal/lean"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/policy"
)

// How much advice is taken, and how long it takes to show whether it was good.
const (
	// maxClientHints is how many hints of one connection may be open: neither
	// come true nor false. Hints beyond that are not taken.
	maxClientHints = 1024
	// maxHints of all connections; the oldest then counts as over.
	maxHints = 64 << 10
	// hintFor is how long a hint stays open.
	hintFor = time.Hour
)

// Advice is what request_configs say that the daemon understands. The names of
// everything else are the engine's own.
type Advice struct {
	Hint     policy.Hint
	Measured bool   // the hint says what will happen, not only what is wished
	Answer   int    // tokens that the answer is expected to have; 0 = not said
	Session  string // several requests of one have the same; "" is none
	Force    bool   // the chunks are to be stored also where the policies refuse them
	Bad      int    // values that are none

	PrefillDepth int // see stack.Prompt; 0 = not said
}

// Tracker follows what clients say will be asked for again, or not, and how long
// an answer will be, until that shows. A hint is open until a prompt comes
// that goes on from the one it was given with, or one of the same session, or
// it is too old. It is safe for concurrent use; its mutex is a leaf.
type Tracker struct {
	now func() time.Time
	mu  struct {
		sync.Mutex
		open   map[topic]openHint
		peak   int         // of open
		order  []givenHint // by age; some are not open any more
		client map[uint64]int
		serial uint64
	}
	given, right, wrong [kinds]atomic.Uint64
	overBudget, bad     atomic.Uint64
}

// kind is what a hint claims about the future. All are judged but a priority,
// which claims nothing.
type kind uint8

const (
	done      kind = iota // no prompt goes on from this one
	continues             // one does
	answer                // how long the answer will be
	priority              // nothing: it is a wish
	kinds
)

// kindOf is the kind of a hint that is measured.
func kindOf(h policy.Hint) kind {
	if h == policy.Continues {
		return continues
	}
	return done
}

// topic is what a hint is about. Those of one topic replace each other; a
// priority has a topic of its own, so that it takes no hint out of judgement.
type topic struct {
	key.Key
	about kind // done stands for both done and continues
}

type openHint struct {
	kind   kind
	client uint64
	serial uint64
	// Of an answer: how many tokens the prompt has, and with it.
	before, after uint64
}

type givenHint struct {
	topic
	serial uint64
	at     time.Time
}

// NewTracker returns a tracker of no hints.
func NewTracker() *Tracker {
	h := &Tracker{now: time.Now}
	h.mu.open, h.mu.client = make(map[topic]openHint), make(map[uint64]int)
	return h
}

// subject is what a hint is about: a session, or else a prompt by its last
// whole chunk, which every prompt that goes on from it has as well.
func subject(c *key.Chain, session string) (k key.Key, ok bool) {
	if session != "" {
		return sessionKey(c.Space, session), true
	}
	for i := c.Len() - 1; i >= 0; i-- {
		if c.Tokens[i] == c.Tokens[0] {
			return c.Key(i), true
		}
	}
	return key.Key{}, false
}

// sessionKey stands for a session among the keys of a space.
func sessionKey(space key.SpaceID, session string) (k key.Key) {
	sum := sha256.Sum256([]byte("session " + session))
	k.Space = space
	copy(k.Hash[:], sum[:])
	return k
}

// Asked closes the hints that a prompt proves right or wrong.
func (h *Tracker) Asked(c *key.Chain, session string) {
	var said key.Key // of the session; nobody's if there is none
	if session != "" {
		said = sessionKey(c.Space, session)
	}
	h.mu.Lock()
	h.expire()
	h.followed(said)
	h.mu.Unlock()
	tokens := tokensOf(c)
	for from, n := 0, min(c.Len(), maxHintChunks); from < n; from += hintRound {
		if !h.goOn(c, from, min(from+hintRound, n), tokens) {
			return
		}
	}
}

// goOn closes what chunks from..to of a prompt of so many tokens go on from,
// and reports whether any hint is left.
func (h *Tracker) goOn(c *key.Chain, from, to int, tokens uint64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := from; i < to && len(h.mu.open) > 0; i++ {
		h.followed(c.Key(i))
		h.grown(topic{c.Key(i), answer}, tokens, uint64(c.Tokens[0]))
	}
	return len(h.mu.open) > 0
}

// followed ends the hints about a session or a prompt when another comes.
func (h *Tracker) followed(k key.Key) {
	h.close(topic{k, done}, continues)
	h.close(topic{k, priority}, continues)
}

// grown ends the hint about an answer if the prompt has come back longer:
// by the answer and the next question. So it was right if there is room for
// the answer; up to a chunk may be missing, as a chain has whole ones only.
func (h *Tracker) grown(k topic, tokens, chunk uint64) {
	if o, open := h.mu.open[k]; open && tokens > o.before {
		h.end(k, &o, tokens+chunk > o.after)
	}
}

func tokensOf(c *key.Chain) (n uint64) {
	for _, t := range c.Tokens {
		n += uint64(t)
	}
	return n
}

const (
	// maxHintChunks bounds what a prompt is searched for, hintRound how much
	// of it while all other connections wait.
	maxHintChunks = 4096
	hintRound     = 256
)

// Take opens the hints of an advice about a prompt, and counts its bad ones. A
// hint that is one too many is taken out of the advice.
func (h *Tracker) Take(client uint64, c *key.Chain, a *Advice) {
	h.bad.Add(uint64(a.Bad))
	if a.Hint != policy.NoHint && !h.give(client, c, a) {
		a.Hint = policy.NoHint
	}
	if a.Answer > 0 && h.expect(client, c, a.Answer) && a.Hint == policy.NoHint {
		a.Hint = policy.AnswerHint(a.Answer)
	}
}

// give opens a hint about what becomes of a prompt and reports whether it is
// taken.
func (h *Tracker) give(client uint64, c *key.Chain, a *Advice) bool {
	k, ok := subject(c, a.Session)
	if !ok {
		return false
	}
	if !a.Measured {
		return h.add(topic{k, priority}, openHint{kind: priority, client: client})
	}
	return h.add(topic{k, done}, openHint{kind: kindOf(a.Hint), client: client})
}

// expect opens a hint about the answer to a prompt and reports whether it is
// taken.
func (h *Tracker) expect(client uint64, c *key.Chain, tokens int) bool {
	k, ok := subject(c, "")
	if !ok {
		return false
	}
	before := tokensOf(c)
	return h.add(topic{k, answer}, openHint{kind: answer, client: client, before: before, after: before + uint64(tokens)})
}

func (h *Tracker) add(k topic, o openHint) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.expire()
	if h.mu.client[o.client] >= maxClientHints {
		h.overBudget.Add(1)
		return false
	}
	h.given[o.kind].Add(1)
	h.mu.serial++
	o.serial = h.mu.serial
	if old, open := h.mu.open[k]; open { // the newest counts; it is the same prompt
		h.leave(old.client)
	}
	h.mu.open[k] = o
	h.mu.client[o.client]++
	h.mu.order = append(h.mu.order, givenHint{k, o.serial, h.now()})
	return true
}

// expire closes some of the hints that are too old, or too many, and reports
// whether there may be more. It is called with the mutex held.
func (h *Tracker) expire() (more bool) {
	for range hintRound {
		if len(h.mu.order) == 0 {
			return false
		}
		first := &h.mu.order[0]
		o, open := h.mu.open[first.topic]
		if open = open && o.serial == first.serial; open && len(h.mu.order) <= maxHints && h.now().Sub(first.at) < hintFor {
			return false
		}
		if open {
			h.close(first.topic, done)
		}
		h.mu.order = h.mu.order[1:]
	}
	return true
}

// close ends a hint, if there is one, that was right if it was as said. How
// long an answer is does not show where no prompt goes on from it.
func (h *Tracker) close(k topic, as kind) {
	o, open := h.mu.open[k]
	switch {
	case !open:
	case o.kind == answer || o.kind == priority:
		lean.Delete(&h.mu.open, k, &h.mu.peak)
		h.leave(o.client)
	default:
		h.end(k, &o, o.kind == as)
	}
}

// end closes an open hint that was right or wrong.
func (h *Tracker) end(k topic, o *openHint, right bool) {
	lean.Delete(&h.mu.open, k, &h.mu.peak)
	h.leave(o.client)
	if right {
		h.right[o.kind].Add(1)
	} else {
		h.wrong[o.kind].Add(1)
	}
}

func (h *Tracker) leave(client uint64) {
	if h.mu.client[client]--; h.mu.client[client] == 0 {
		delete(h.mu.client, client)
	}
}

// Outcome counts the hints of one kind by how they ended. A hint that is neither
// right nor wrong is still open, or was repeated, or says how long an answer is
// from which no prompt went on.
type Outcome struct {
	Given uint64 `json:"given"`
	Right uint64 `json:"right"`
	Wrong uint64 `json:"wrong"`
}

// Stats is what clients have said about the future.
type Stats struct {
	Done       Outcome `json:"done"`
	Continues  Outcome `json:"continues"`
	Answer     Outcome `json:"answer"`      // expected_output_tokens
	Priority   uint64  `json:"priority"`    // priorities given; no policy judges them
	OverBudget uint64  `json:"over_budget"` // not taken: its connection has too many open
	Bad        uint64  `json:"bad"`         // values that are none
}

// Stats closes the hints that are too old, and returns the outcomes of all.
func (h *Tracker) Stats() Stats {
	for more := true; more; {
		h.mu.Lock()
		more = h.expire()
		h.mu.Unlock()
	}
	of := func(k kind) Outcome {
		return Outcome{h.given[k].Load(), h.right[k].Load(), h.wrong[k].Load()}
	}
	return Stats{
		Done: of(done), Continues: of(continues), Answer: of(answer),
		Priority: h.given[priority].Load(), OverBudget: h.overBudget.Load(), Bad: h.bad.Load(),
	}
}
