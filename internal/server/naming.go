package server

import (
	"context"
	"sync"

	"github.com/kvstored/kvstored/key"
)

// maxNaming bounds the spaces that wait to be announced; beyond it all are.
const maxNaming = 1024

// naming has the events of a space told again once its identity is known. The chunks
// that a start finds were told under an id alone, which says nothing to a router, and
// not at all to a user that may read that model only.
type naming struct {
	server *Server
	wake   chan struct{} // capacity 1
	mu     struct {
		sync.Mutex
		waiting []key.SpaceID
		all     bool // there were more
	}
}

// add notes that the identity of a space has become known. One of which nothing is stored
// is passed over: what comes is told with its identity, and a client that opens very many
// such spaces has nothing announced.
func (n *naming) add(id key.SpaceID) {
	if !n.server.o.Stack.Knows(id) {
		return
	}
	n.mu.Lock()
	if len(n.mu.waiting) < maxNaming {
		n.mu.waiting = append(n.mu.waiting, id)
	} else {
		n.mu.all = true
	}
	n.mu.Unlock()
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

// take takes out what waits.
func (n *naming) take() (ids []key.SpaceID, all bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	ids, all = n.mu.waiting, n.mu.all
	n.mu.waiting, n.mu.all = nil, false
	return ids, all
}

// run announces until ctx ends.
func (n *naming) run(ctx context.Context) {
	for {
		select {
		case <-n.wake:
		case <-ctx.Done():
			return
		}
		ids, all := n.take()
		if all {
			ids = nil
			_ = n.server.o.Stack.Announce(ctx) // it fails as ctx ends
		}
		for _, id := range ids {
			_ = n.server.o.Stack.AnnounceSpace(ctx, id)
		}
	}
}
