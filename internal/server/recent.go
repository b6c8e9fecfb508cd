package server

import (
	"container/list"
	"sync"
	"unsafe"

	"github.com/kvstored/kvstored/internal/access"
	"github.com/kvstored/kvstored/internal/explain"
	"github.com/kvstored/kvstored/key"
)

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

// bytes is the memory that it takes; ranks share their chunks.
func (r *recentChain) bytes() int {
	c := &r.chains[0]
	return recentEntryBytes + len(r.lookupID) +
		cap(r.chains)*int(unsafe.Sizeof(*c)) +
		cap(c.Hashes)*int(unsafe.Sizeof(key.Hash{})) +
		cap(c.Tokens)*int(unsafe.Sizeof(uint32(0)))
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

// outcomes lists what the prompts with a lookup id got, of each user that has used it.
func (r *recent) outcomes(lookupID string) (out []recentChain) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for as, e := range r.mu.byName {
		if as.lookupID == lookupID {
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
