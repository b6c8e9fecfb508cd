package client

import (
	"sync"

	"github.com/kvstored/kvstored/internal/wire"
)

// keep is what tells kept prompts apart: its address.
type keep struct{ _ byte }

// Kept is p for several calls: each connection sends its tokens or hashes once, with
// the first Lookup, Prefetch, Get or Reserve, and refers to them from then on. The
// daemon keeps the last 16 of a connection; one that it does not keep any more is sent
// again, and one of more than 65,536 chunks with each call. The slices of p must not change for as long as what Kept returned is used.
func (p Prompt) Kept() Prompt {
	p.keep = new(keep)
	return p
}

// keptChain is a chain as the daemon keeps it, which is all of it but its skip.
type keptChain struct {
	of            *keep
	space         uint32
	unfull, alone bool
}

// chains are those that the daemon was sent to keep. The mutex is a leaf.
type chains struct {
	mu struct {
		sync.Mutex
		last [wire.KeptChains]keptChain // the one of number n is at n modulo their count
		ids  uint64                     // given so far
	}
}

// number is what the connection calls a chain, never 0, and whether that was sent. No
// number is given twice: a reference that is overtaken by other chains is one to nothing.
func (cs *chains) number(k keptChain) (id uint64, sent bool) {
	m := &cs.mu
	m.Lock()
	defer m.Unlock()
	n := uint64(len(m.last))
	for id := m.ids; id > 0 && id+n > m.ids; id-- {
		if m.last[id%n] == k {
			return id, true
		}
	}
	m.ids++
	m.last[m.ids%n] = k
	return m.ids, false
}
