package server

import (
	"cmp"
	"slices"
	"sync"
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
