package server

import (
	"container/list"
	"encoding/binary"
	"slices"
	"strings"
	"sync"
	"time"
	"unsafe"

	"github.com/kvstored/kvstored/internal/access"
	"github.com/kvstored/kvstored/internal/explain"
	"github.com/kvstored/kvstored/internal/server/hint"
	"github.com/kvstored/kvstored/internal/store"
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
	reached *store.Reached
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
	store *store.Store
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

// observe tells the store of a request for a prompt, in each of the spaces that were named,
// and of what its client says about it. A lookup and the first request after it for the same
// chunks are one, and so are several lookups.
func (l *promptLog) observe(chains []key.Chain, looks bool, a hint.Advice) {
	if chains[0].Len() == 0 {
		return
	}
	n := l.take(&chains[0])
	if !n.looked && l.asked != nil {
		l.asked(&chains[0])
	}
	n.force, n.done = a.Force, a.Hint == policy.Done
	for r := range chains {
		known := l.join(n, chains[r].Space)
		l.observeOne(&chains[r], store.Prompt{Hint: a.Hint, Advice: n.looked && known, PrefillDepth: a.PrefillDepth})
	}
	n.looked = looks
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
		l.observeOne(&chains[r], store.Prompt{Hint: a.Hint, Advice: true})
	}
}

// observeOne tells the store of a prompt; of one that it knows only if there is
// a hint.
func (l *promptLog) observeOne(chain *key.Chain, p store.Prompt) {
	if !p.Advice || p.Hint != policy.NoHint {
		l.store.Planning.Observe(chain, p)
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

// maxRecentBytes bounds the memory of what recent remembers.
const (
	maxRecentBytes   = 8 << 20
	recentEntryBytes = 320 // a name's share of the map, its place in the order and a recentChain
)

// recent is the prompts that were asked for by their lookup ids, so that a warm can
// name them. A user's names are its own. The prompt not asked for the longest is
// forgotten first.
type recent struct {
	mu struct {
		sync.Mutex
		byName map[asked]*list.Element // of *recentChain
		order  list.List               // newest first
		bytes  int
	}
}

type asked struct {
	uid      uint32
	lookupID string
}

type recentChain struct {
	asked
	policy  *access.Policy // that let the user read all of chains
	chains  []key.Chain    // by rank; never changed
	outcome outcome
}

// outcome is the prefix that a prompt got; until its job has ended, the one that was found.
type outcome struct {
	why        explain.Absence
	asked, got uint64 // tokens
}

// bytes is the memory that it takes.
func (r *recentChain) bytes() int { return recentEntryBytes + len(r.lookupID) + chainsBytes(r.chains) }

// chainsBytes is the memory of chains, of which some share their chunks.
func chainsBytes(chains []key.Chain) int {
	n := cap(chains) * int(unsafe.Sizeof(key.Chain{}))
	var counted []*key.Hash // the first of each array; few, see alike
	for i := range chains {
		c := &chains[i]
		if first := unsafe.SliceData(c.Hashes); !slices.Contains(counted, first) {
			counted = append(counted, first)
			n += cap(c.Hashes)*int(unsafe.Sizeof(key.Hash{})) + cap(c.Tokens)*int(unsafe.Sizeof(uint32(0)))
		}
	}
	return n
}

// add remembers chains, which never change, under the name in as, and forgets the
// prompt that had the name before. A prompt without a whole chunk only takes the
// name away.
func (r *recent) add(as asked, policy *access.Policy, chains []key.Chain) {
	c := &recentChain{asked: as, policy: policy, chains: chains}
	r.mu.Lock()
	defer r.mu.Unlock()
	if e := r.mu.byName[c.asked]; e != nil {
		r.forget(e)
	}
	if chains[0].Len() == 0 {
		return
	}
	if r.mu.byName == nil {
		r.mu.byName = make(map[asked]*list.Element)
	}
	r.mu.byName[c.asked] = r.mu.order.PushFront(c)
	for r.mu.bytes += c.bytes(); r.mu.bytes > maxRecentBytes; {
		r.forget(r.mu.order.Back())
	}
}

func (r *recent) forget(e *list.Element) {
	c := r.mu.order.Remove(e).(*recentChain)
	delete(r.mu.byName, c.asked)
	r.mu.bytes -= c.bytes()
}

// ended notes what a prompt got in the end, unless its name is forgotten.
func (r *recent) ended(as asked, o outcome) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if of := r.mu.byName[as]; of != nil {
		of.Value.(*recentChain).outcome = o
	}
}

// outcomes lists what the prompts with a lookup id got, of each user that has used it. A name
// that goes on behind a hyphen is one of it: vLLM appends a number and digits to a request's.
func (r *recent) outcomes(lookupID string) (out []recentChain) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for as, e := range r.mu.byName {
		if as.lookupID == lookupID || strings.HasPrefix(as.lookupID, lookupID+"-") {
			out = append(out, *e.Value.(*recentChain))
		}
	}
	return out
}

// shorter lists the prompts asked for last that did not get all they asked for, newest first.
func (r *recent) shorter(most int) (out []recentChain) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for e := r.mu.order.Front(); e != nil && len(out) < most; e = e.Next() {
		if c := e.Value.(*recentChain); c.outcome.got < c.outcome.asked {
			out = append(out, *c)
		}
	}
	return out
}

// get returns what a user asked for under a name; nil if that is not known, or was
// asked for when another policy said what the user may read.
func (r *recent) get(as asked, policy *access.Policy) []key.Chain {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e := r.mu.byName[as]; e != nil {
		if c := e.Value.(*recentChain); c.policy == policy {
			return c.chains
		}
	}
	return nil
}
