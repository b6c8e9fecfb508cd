package server

import (
	"encoding/binary"
	"slices"
	"time"
	"unsafe"

	"github.com/kvstored/kvstored/internal/server/hint"
	"github.com/kvstored/kvstored/internal/stack"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/policy"
)

// maxPrompts is how many prompts a connection remembers having asked about.
const maxPrompts = 64

// promptRecord is a prompt that a connection has asked about.
type promptRecord struct {
	space key.SpaceID
	ranks []key.SpaceID // in which it was asked about besides
	tail  key.Hash      // of its last chunk
	n     int           // chunks, with those skipped; 0: no prompt
	// looked says that a lookup observed it, and no request for its chunks has
	// come since: the first one is the same request.
	looked bool
	done   bool // no request for it is expected any more
	force  bool // its chunks are to be stored also where the policies refuse them
	open   openRange
	maxAge time.Duration // of what is stored of it; 0: any
	// reached is how far the groups of a hybrid model went when it was asked for; nil if it was not.
	reached *stack.Reached
}

func (n *promptRecord) is(c *key.Chain) bool {
	return n.n > 0 && n.n <= c.Len() && n.tail == c.Hashes[n.n-1] && n.in(c.Space)
}

func (n *promptRecord) in(space key.SpaceID) bool {
	return n.space == space || slices.Contains(n.ranks, space)
}

// bytes is the memory that ranks has.
func (n *promptRecord) bytes() int64 {
	return int64(cap(n.ranks)) * int64(unsafe.Sizeof(key.SpaceID{}))
}

// mark is what tells records apart, in little memory: all of them are looked at for
// each request.
type mark struct {
	tail uint64 // of promptRecord.tail, the first bytes
	n    int
}

func markOf(tail *key.Hash, n int) mark { return mark{binary.LittleEndian.Uint64(tail[:]), n} }

// promptLog is the last prompts of a connection, and what its client said of them.
// It tells the store of each. It is the reader's alone.
type promptLog struct {
	stack *stack.Stack
	asked func(*key.Chain) // nil: not wanted
	list  [maxPrompts]promptRecord
	marks [maxPrompts]mark // of list
	next  int
	// rankBytes is the memory that the ranks of list have.
	rankBytes int64
}

// of finds the longest prompt that c is or goes on from, or nil.
func (l *promptLog) of(c *key.Chain) (found *promptRecord) {
	for i := range l.marks {
		m := &l.marks[i]
		if m.n == 0 || m.n > c.Len() || *m != markOf(&c.Hashes[m.n-1], m.n) {
			continue
		}
		if n := &l.list[i]; n.is(c) && (found == nil || n.n > found.n) {
			found = n
		}
	}
	return found
}

// take returns the record of exactly c, which may be a new one.
func (l *promptLog) take(c *key.Chain) *promptRecord {
	if n := l.of(c); n != nil && n.n == c.Len() {
		return n
	}
	n := &l.list[l.next]
	l.rankBytes -= n.bytes()
	*n = promptRecord{space: c.Space, tail: c.Hashes[c.Len()-1], n: c.Len()}
	l.marks[l.next] = markOf(&n.tail, n.n)
	l.next = (l.next + 1) % maxPrompts
	return n
}

// join makes a record one of the prompt in a space as well, and reports whether
// it was.
func (l *promptLog) join(n *promptRecord, space key.SpaceID) (was bool) {
	if n.in(space) {
		return true
	}
	l.rankBytes -= n.bytes()
	n.ranks = append(n.ranks, space)
	l.rankBytes += n.bytes()
	return false
}

// observe tells the store of a request for a prompt, and of what its client
// says about it; ranks are the prompt in the other spaces that were named. A
// lookup and the first request after it for the same chunks are one, and so
// are several lookups.
func (l *promptLog) observe(chain *key.Chain, ranks []key.Chain, looks bool, a hint.Advice) {
	if chain.Len() == 0 {
		return
	}
	n := l.take(chain)
	if !n.looked {
		if l.asked != nil {
			l.asked(chain)
		}
	}
	n.force, n.done = a.Force, a.Hint == policy.Done
	l.observeOne(chain, stack.Prompt{Hint: a.Hint, Advice: n.looked, PrefillDepth: a.PrefillDepth})
	for r := range ranks {
		known := l.join(n, ranks[r].Space)
		l.observeOne(&ranks[r], stack.Prompt{Hint: a.Hint, Advice: n.looked && known, PrefillDepth: a.PrefillDepth})
	}
	n.looked = looks
}

// observeAll is observe for all ranks of a prompt: one request, whose hint
// is one hint.
func (l *promptLog) observeAll(chains []key.Chain, looks bool, a hint.Advice) {
	l.observe(&chains[0], chains[1:], looks, a)
}

// advise takes what a client says about a prompt that was observed before.
// The session alone is nothing new.
func (l *promptLog) advise(chains []key.Chain, a hint.Advice) {
	if chains[0].Len() == 0 || a == (hint.Advice{Session: a.Session}) {
		return
	}
	n := l.take(&chains[0])
	n.force, n.done = a.Force, a.Hint == policy.Done
	for r := range chains {
		l.join(n, chains[r].Space)
		l.observeOne(&chains[r], stack.Prompt{Hint: a.Hint, Advice: true})
	}
}

// observeOne tells the store of a prompt; of one that it knows only if there is
// a hint.
func (l *promptLog) observeOne(chain *key.Chain, p stack.Prompt) {
	if !p.Advice || p.Hint != policy.NoHint {
		l.stack.Observe(chain, p)
	}
}

// find is what a client said of a prompt that chain is or goes on from; zero if it
// is not remembered.
func (l *promptLog) find(chain *key.Chain) (n promptRecord) {
	if found := l.of(chain); found != nil {
		n = *found
	}
	return n
}

// allows is how old chunks of the prompt may become where the request that stores them
// says so many seconds: the shorter of the two; 0 says nothing.
func (n *promptRecord) allows(seconds uint32) time.Duration {
	d := time.Duration(seconds) * time.Second
	if d == 0 || n.maxAge > 0 && n.maxAge < d {
		return n.maxAge
	}
	return d
}
