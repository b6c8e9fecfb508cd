package main

import (
	"fmt"
	"slices"
	"sync"

	"github.com/kvstored/kvstored/router/index"
)

// rival is one way to know who holds what.
type rival interface {
	// apply takes in an event: removals first, then stores.
	apply(e event)
	// query puts into depths how many leading blocks each worker has that has
	// one.
	query(prompt []uint64, depths depths)
}

// depths are an answer, by the worker's id.
type depths map[uint32]int32

// firstID is the id of the first worker.
const firstID = 7000

// ours is the routing index.
type ours struct {
	shard   *index.Shard
	members map[index.Worker]uint32
	at      [workers]index.At
	matches []index.Match // of the one goroutine that asks
}

func newOurs() rival {
	x, err := index.New(index.Options{Bytes: 8 << 30})
	if err != nil {
		panic(err)
	}
	o := &ours{members: make(map[index.Worker]uint32)}
	for w := range workers {
		o.at[w].Worker = index.Worker{ID: fmt.Sprintf("http://10.0.0.%d:8000", w)}
		o.members[o.at[w].Worker] = uint32(firstID + w)
		if err := x.Register(o.at[w].Worker, index.WorkerOptions{}); err != nil {
			panic(err)
		}
	}
	if o.shard, err = x.Open(index.Name{Model: "m"}, index.Config{BlockTokens: traceTokens}); err != nil {
		panic(err)
	}
	return o
}

func (o *ours) apply(e event) {
	if len(e.removed) > 0 {
		if _, err := o.shard.Remove(o.at[e.worker], e.removed); err != nil {
			panic(err)
		}
	}
	parent := index.Root
	if e.known > 0 {
		parent = index.After(e.prompt[e.known-1])
	}
	if _, err := o.shard.Store(o.at[e.worker], parent, e.prompt[e.known:]); err != nil {
		panic(err)
	}
}

func (o *ours) find(prompt []uint64) []index.Match {
	o.matches = o.shard.Find(o.matches[:0], prompt, index.FindOptions{})
	return o.matches
}

func (o *ours) query(prompt []uint64, out depths) {
	for _, m := range o.find(prompt) {
		out[o.members[m.Worker]] = m.Blocks[index.GPU]
	}
}

// trie is a trie of maps.
type trie struct {
	mu    sync.RWMutex
	root  *node
	nodes map[uint64]*node
}

type node struct {
	parent   *node
	hash     uint64
	children map[uint64]*node
	workers  map[uint32]struct{}
}

func newTrie() rival { return &trie{root: &node{}, nodes: make(map[uint64]*node)} }

func (t *trie) apply(e event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	w := uint32(firstID + e.worker)
	for _, hash := range e.removed {
		n := t.nodes[hash]
		delete(n.workers, w)
		for n != t.root && len(n.workers) == 0 && len(n.children) == 0 {
			delete(n.parent.children, n.hash)
			delete(t.nodes, n.hash)
			n = n.parent
		}
	}
	at := t.root
	if e.known > 0 {
		at = t.nodes[e.prompt[e.known-1]]
	}
	for _, hash := range e.prompt[e.known:] {
		n := at.children[hash]
		if n == nil {
			n = &node{parent: at, hash: hash, workers: make(map[uint32]struct{})}
			if at.children == nil {
				at.children = make(map[uint64]*node)
			}
			at.children[hash], t.nodes[hash] = n, n
		}
		n.workers[w] = struct{}{}
		at = n
	}
}

func (t *trie) query(prompt []uint64, out depths) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	at := t.root
	active := make([]uint32, 0, workers)
	for i, hash := range prompt {
		if at = at.children[hash]; at == nil {
			return
		}
		if i == 0 {
			for w := range at.workers {
				active = append(active, w)
			}
		} else {
			active = slices.DeleteFunc(active, func(w uint32) bool { _, has := at.workers[w]; return !has })
		}
		if len(active) == 0 {
			return
		}
		for _, w := range active {
			out[w]++
		}
	}
}

// counting is the same trie, asked in the plainest way: each node's workers are gone
// through, and those counted that have had all before it.
type counting struct{ *trie }

func newCounting() rival { return counting{newTrie().(*trie)} }

func (t counting) query(prompt []uint64, out depths) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	at := t.root
	for i, hash := range prompt {
		if at = at.children[hash]; at == nil {
			return
		}
		some := false
		for w := range at.workers {
			if out[w] == int32(i) {
				out[w]++
				some = true
			}
		}
		if !some {
			return
		}
	}
}

// flat is maps from a hash to the workers that have the block.
type flat struct{ parts [flatParts]flatPart }

const flatParts = 64

type flatPart struct {
	mu      sync.RWMutex
	holders map[uint64][]uint32
}

func newFlat() rival {
	f := new(flat)
	for i := range f.parts {
		f.parts[i].holders = make(map[uint64][]uint32)
	}
	return f
}

func (f *flat) part(hash uint64) *flatPart { return &f.parts[hash%flatParts] }

func (f *flat) apply(e event) {
	w := uint32(firstID + e.worker)
	for _, hash := range e.removed {
		p := f.part(hash)
		p.mu.Lock()
		kept := p.holders[hash]
		if i := slices.Index(kept, w); i >= 0 {
			kept[i] = kept[len(kept)-1]
			kept = kept[:len(kept)-1]
		}
		if len(kept) == 0 {
			delete(p.holders, hash)
		} else {
			p.holders[hash] = kept
		}
		p.mu.Unlock()
	}
	for _, hash := range e.prompt[e.known:] {
		p := f.part(hash)
		p.mu.Lock()
		if held := p.holders[hash]; !slices.Contains(held, w) {
			p.holders[hash] = append(held, w)
		}
		p.mu.Unlock()
	}
}

func (f *flat) query(prompt []uint64, out depths) {
	active := make([]uint32, 0, workers)
	for i, hash := range prompt {
		p := f.part(hash)
		p.mu.RLock()
		held := p.holders[hash]
		if i == 0 {
			active = append(active, held...)
		} else {
			active = slices.DeleteFunc(active, func(w uint32) bool { return !slices.Contains(held, w) })
		}
		p.mu.RUnlock()
		if len(active) == 0 {
			return
		}
		for _, w := range active {
			out[w]++
		}
	}
}
