package server

import (
	"container/list"
	"sync"

	"github.com/kvstored/kvstored/key"
)

// maxRecentBytes bounds what recent remembers, at so much for each chunk
// besides its name.
const (
	maxRecentBytes   = 8 << 20
	recentChunkBytes = 20 // hash and tokens
)

// recent is what was asked for under which lookup id, so that a warm can name
// it. A user's names are its own. What was not asked for the longest is
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
	chains []key.Chain // by rank; nobody changes them
}

func (r *recentChain) bytes() int { return len(r.lookupID) + recentChunkBytes*r.chains[0].Len() }

// add remembers chains, which nobody may change, instead of what had the name.
func (r *recent) add(uid uint32, lookupID string, chains []key.Chain) {
	c := &recentChain{asked{uid, lookupID}, chains}
	r.mu.Lock()
	defer r.mu.Unlock()
	if e := r.mu.byName[c.asked]; e != nil {
		r.forget(e)
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

// get returns what a user asked for under a name; nil if that is not known.
func (r *recent) get(uid uint32, lookupID string) []key.Chain {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e := r.mu.byName[asked{uid, lookupID}]; e != nil {
		return e.Value.(*recentChain).chains
	}
	return nil
}
