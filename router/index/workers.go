package index

import (
	"fmt"
	"slices"
	"time"
)

const (
	maxNameBytes = 1024  // of a worker's id, and of each part of a shard's name
	maxSchemes   = 65535 // ways in which engines name blocks
)

// WorkerOptions say how a worker is to be treated.
type WorkerOptions struct {
	// Scheme names the way in which the worker's engine hashes blocks. Workers
	// with equal schemes give equal blocks equal names, and an alias is kept
	// once for all of them: those of vLLM with one hash function and one
	// PYTHONHASHSEED. Empty: the worker has a scheme of its own.
	Scheme string

	// TTL is for a worker that sends no events: blocks that it was said to hold
	// are forgotten by [Index.Expire] when they were not said again for so long.
	// 0 = never; at most about 100 years, and whole seconds count.
	TTL time.Duration
}

// member is a registered worker.
type member struct {
	Worker
	named  string // its scheme; empty for one of its own
	scheme uint16
	ttl    uint32 // seconds
	live   bool   // else the slot waits to be used again, or for its last traces to go
}

// registry is who is registered. It is replaced and never changed, so that
// readers need no lock.
type registry struct {
	members []member // by slot
	slots   map[Worker]uint32
	reused  uint64 // counts workers that came to a slot that another had
}

func (r *registry) clone() *registry {
	c := &registry{members: slices.Clone(r.members), slots: make(map[Worker]uint32, len(r.slots)+1), reused: r.reused}
	for w, slot := range r.slots {
		c.slots[w] = slot
	}
	return c
}

// slot returns a worker's slot.
func (r *registry) slot(w Worker) (uint32, error) {
	slot, there := r.slots[w]
	if !there {
		return 0, fmt.Errorf("worker %s: %w; register it first", w, ErrUnknownWorker)
	}
	return slot, nil
}

// Register makes a worker known. Without it nothing can be stored for it.
func (x *Index) Register(w Worker, o WorkerOptions) error {
	if err := checkWorker(w, o); err != nil {
		return err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	r := x.workers.Load().clone()
	if err := x.enter(r, w, o); err != nil {
		return err
	}
	x.workers.Store(r)
	return nil
}

func checkWorker(w Worker, o WorkerOptions) error {
	switch {
	case w.ID == "" || len(w.ID) > maxNameBytes || len(o.Scheme) > maxNameBytes:
		return fmt.Errorf("register worker of %d bytes, scheme of %d: %w; 1 to %d, and 0 to %d", len(w.ID), len(o.Scheme), ErrWorkerName, maxNameBytes, maxNameBytes)
	case o.TTL < 0 || o.TTL > 0 && o.TTL < time.Second || o.TTL > maxTTL:
		return fmt.Errorf("register worker %s: a time to live of %v: %w; 0, or from 1 s to %v", w, o.TTL, ErrOption, maxTTL)
	}
	return nil
}

const maxTTL = 100 * 365 * 24 * time.Hour

// enter puts a worker into a registry that is not published yet.
func (x *Index) enter(r *registry, w Worker, o WorkerOptions) error {
	if _, there := r.slots[w]; there {
		return fmt.Errorf("worker %s: %w; unregister it first", w, ErrWorkerExists)
	}
	if len(r.slots) == x.options.MaxWorkers {
		return fmt.Errorf("worker %s: %w; there are %d", w, ErrTooManyWorkers, len(r.slots))
	}
	scheme, ok := x.schemes.take(o.Scheme)
	if !ok {
		return fmt.Errorf("worker %s: %w with a scheme of their own; there are %d: name equal ones alike", w, ErrTooManyWorkers, maxSchemes)
	}
	m := member{Worker: w, named: o.Scheme, scheme: scheme, ttl: uint32(o.TTL / time.Second), live: true}
	slot := uint32(len(r.members))
	if n := len(x.idle); n > 0 {
		slot, x.idle = x.idle[n-1], x.idle[:n-1]
		r.members[slot] = m
		r.reused++
	} else {
		r.members = append(r.members, m)
	}
	r.slots[w] = slot
	return nil
}

// Unregister forgets a worker and all that it holds, in all shards.
func (x *Index) Unregister(w Worker) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	r := x.workers.Load().clone()
	slot, err := r.slot(w)
	if err != nil {
		return err
	}
	m := &r.members[slot]
	m.live = false
	delete(r.slots, w)
	x.workers.Store(r) // from here on nothing is stored for it
	for _, s := range *x.shards.Load() {
		s.clear(slot, allMedia)
	}
	x.schemes.give(m.named, m.scheme)
	x.idle = append(x.idle, slot)
	return nil
}

// Workers returns all workers that are registered, in the order of [Match]es.
func (x *Index) Workers() []Worker {
	r := x.workers.Load()
	all := make([]Worker, 0, len(r.slots))
	for _, m := range r.members {
		if m.live {
			all = append(all, m.Worker)
		}
	}
	return all
}

// schemes numbers the ways in which engines name blocks.
type schemes struct {
	named map[string]uint16
	users map[uint16]int // of named ones
	idle  []uint16
	last  uint16
}

func (s *schemes) take(name string) (uint16, bool) {
	if n, known := s.named[name]; name != "" && known {
		s.users[n]++
		return n, true
	}
	n := s.last + 1
	switch {
	case len(s.idle) > 0:
		n, s.idle = s.idle[len(s.idle)-1], s.idle[:len(s.idle)-1]
	case s.last == maxSchemes:
		return 0, false
	default:
		s.last = n
	}
	if name != "" {
		s.named[name], s.users[n] = n, 1
	}
	return n, true
}

func (s *schemes) give(name string, n uint16) {
	if name != "" {
		if s.users[n]--; s.users[n] > 0 {
			return
		}
		delete(s.named, name)
		delete(s.users, n)
	}
	s.idle = append(s.idle, n)
}
