package server

import (
	"cmp"
	"slices"
	"sync"

	"github.com/kvstored/kvstored/internal/ledger"
)

// sessions are the connections that are greeted and served. The mutex is a leaf.
type sessions struct {
	mu struct {
		sync.Mutex
		byID map[uint64]*session
	}
}

// add makes a connection known; remove ends that.
func (ss *sessions) add(c *session) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	ss.mu.byID[c.id] = c
}

func (ss *sessions) remove(c *session) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	delete(ss.mu.byID, c.id)
}

// get is the connection of an id; nil if there is none.
func (ss *sessions) get(id uint64) *session {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	return ss.mu.byID[id]
}

// all lists the connections by age.
func (ss *sessions) all() (list []*session) {
	ss.mu.Lock()
	for _, c := range ss.mu.byID {
		list = append(list, c)
	}
	ss.mu.Unlock()
	slices.SortFunc(list, func(a, b *session) int { return cmp.Compare(a.id, b.id) })
	return list
}

// len is how many connections are served now.
func (ss *sessions) len() int {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	return len(ss.mu.byID)
}

// held finds a fill of the connection, or a job that it may name: its own, or one that
// another connection of its user shares.
func (c *session) held(id uint64) (*job, *fill) {
	c.mu.Lock()
	j, f := c.mu.jobs[id], c.mu.fills[id]
	c.mu.Unlock()
	if j != nil || f != nil {
		return j, f
	}
	if j, is := c.server.shared.Load(id); is && j.(*job).session.uid == c.uid {
		return j.(*job), nil
	}
	return nil, nil
}

// live lists the jobs and fills of a connection.
func (c *session) live() (jobs []*job, fills []*fill) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, j := range c.mu.jobs {
		jobs = append(jobs, j)
	}
	for _, f := range c.mu.fills {
		fills = append(fills, f)
	}
	return jobs, fills
}

// holds is what a connection has leased and pinned, as budgets count it.
func (c *session) holds() (leased, pinned uint64) {
	c.mu.Lock()
	owner, of := c.owner, c.server.o.Stack.OwnerBytes
	c.mu.Unlock()
	if owner == ledger.Daemon {
		return 0, 0
	}
	return uint64(of(owner, ledger.Lease)), uint64(of(owner, ledger.Pin))
}

// revokeAll frees all that a connection holds, and returns how many chunks
// that was. The connection stays and may hold something else.
func (c *session) revokeAll() (n int) {
	c.whileOpen(func() {
		jobs, fills := c.live()
		for _, j := range jobs {
			n += j.revoke("an administrator wants its memory")
		}
		for _, f := range fills {
			n += f.revoke("an administrator wants its memory")
		}
		n += c.unpin()
	})
	return n
}
