package server

import (
	"math"
	"slices"

	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/policy"
	"github.com/kvstored/kvstored/tier"
)

// maxNotes is how many prompts a connection remembers having asked about.
const maxNotes = 64

// note is a prompt that a connection has asked about.
type note struct {
	space key.SpaceID
	ranks []key.SpaceID // in which it was asked about besides
	tail  key.Hash      // of its last chunk
	n     int           // chunks, with those skipped; 0: no prompt
	// looked says that a lookup announced it, and nobody has asked for its
	// chunks since: whoever does is the same request.
	looked  bool
	done    bool // nobody is expected to ask for it again
	insists bool // its chunks are to be stored whatever the policies think
}

func (n *note) is(c *key.Chain) bool {
	return n.n > 0 && n.n <= c.Len() && n.tail == c.Hashes[n.n-1] && n.in(c.Space)
}

func (n *note) in(space key.SpaceID) bool {
	return n.space == space || slices.Contains(n.ranks, space)
}

// join makes the note one of the prompt in a space as well, and reports whether
// it was.
func (n *note) join(space key.SpaceID) (was bool) {
	if n.in(space) {
		return true
	}
	n.ranks = append(n.ranks, space)
	return false
}

// notes are the last prompts of a connection; the reader's alone.
type notes struct {
	list [maxNotes]note
	next int
}

// of finds the longest prompt that c is or goes on from, or nil.
func (ns *notes) of(c *key.Chain) (found *note) {
	for i := range ns.list {
		if n := &ns.list[i]; n.is(c) && (found == nil || n.n > found.n) {
			found = n
		}
	}
	return found
}

// take returns the note of exactly c, which may be a new one.
func (ns *notes) take(c *key.Chain) *note {
	if n := ns.of(c); n != nil && n.n == c.Len() {
		return n
	}
	n := &ns.list[ns.next]
	ns.next = (ns.next + 1) % maxNotes
	*n = note{space: c.Space, tail: c.Hashes[c.Len()-1], n: c.Len()}
	return n
}

// announce tells the store of a request for a prompt, and of what its client
// says about it; ranks are the prompt in the other spaces that were named. A
// lookup and the first request after it for the same chunks are one, and so
// are several lookups.
func (c *session) announce(chain *key.Chain, ranks []key.Chain, looks bool, a advice) {
	if chain.Len() == 0 {
		return
	}
	n := c.notes.take(chain)
	if !n.looked {
		c.server.hints.asked(chain, a.session)
	}
	c.heed(n, chain, &a)
	c.tell(chain, tier.Prompt{Hint: a.hint, Advice: n.looked})
	for r := range ranks {
		known := n.join(ranks[r].Space)
		c.tell(&ranks[r], tier.Prompt{Hint: a.hint, Advice: n.looked && known})
	}
	n.looked = looks
}

// announceAll is announce for all ranks of a prompt: one request, whose hint
// is one hint.
func (c *session) announceAll(chains []key.Chain, looks bool, a advice) {
	c.announce(&chains[0], chains[1:], looks, a)
}

// advise takes what a client says about a prompt that was announced before.
// The session alone is nothing new.
func (c *session) advise(chains []key.Chain, a advice) {
	if chains[0].Len() == 0 || a == (advice{session: a.session}) {
		return
	}
	n := c.notes.take(&chains[0])
	c.heed(n, &chains[0], &a)
	for r := range chains {
		n.join(chains[r].Space)
		c.tell(&chains[r], tier.Prompt{Hint: a.hint, Advice: true})
	}
}

// heed notes what a client says about a prompt. A hint too many is none.
func (c *session) heed(n *note, chain *key.Chain, a *advice) {
	hints := &c.server.hints
	hints.bad.Add(uint64(a.bad))
	if a.hint != policy.NoHint && !hints.give(c.id, chain, a) {
		a.hint = policy.NoHint
	}
	n.insists, n.done = a.insists, a.hint == policy.Done
	if a.answer > 0 && hints.expect(c.id, chain, a.answer) && a.hint == policy.NoHint {
		a.hint = policy.AnswerHint(a.answer)
	}
}

// tell tells the store of a prompt; one that it knows of only if there is a
// hint.
func (c *session) tell(chain *key.Chain, p tier.Prompt) {
	if !p.Advice || p.Hint != policy.NoHint {
		c.server.o.Stack.Announce(chain, p)
	}
}

// worthAll is worth for all ranks of a prompt: what one of them would not
// store is of no use to the others.
func (c *session) worthAll(chains []key.Chain, m *tier.Match) uint32 {
	least := uint32(math.MaxUint32)
	for r := range chains {
		least = min(least, c.worth(&chains[r], m))
	}
	return least
}

// worth is how many chunks behind the skipped ones are there or worth storing.
func (c *session) worth(chain *key.Chain, m *tier.Match) uint32 {
	return uint32(m.Chunks + c.server.o.Stack.Worth(chain, chain.Skip+m.Chunks, c.payload))
}

// said is what a client said of a prompt that c is or goes on from.
func (c *session) said(chain *key.Chain) (n note) {
	if found := c.notes.of(chain); found != nil {
		n = *found
	}
	return n
}
