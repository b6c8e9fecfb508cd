package feed

import (
	"slices"
	"time"

	"github.com/kvstored/kvstored/router/index"
)

// piece is blocks of one event that follow each other.
type piece struct {
	shard  *index.Shard
	at     index.At
	parent index.Parent
	behind uint64 // the hash of parent, if there is one
	hashes []uint64
	tokens []uint32 // nil: blocks are known by their hashes alone
	each   int      // tokens in a block, with tokens

	since time.Time // of one that waits
	gone  bool      // it waits no more
}

// blockName is a block as the events of one publisher name it.
type blockName struct {
	shard *index.Shard
	hash  uint64
}

// waiting are the pieces whose parents are not known yet.
type waiting struct {
	maxPieces, maxBlocks int

	order  []*piece // by age; some are gone
	parent map[blockName][]*piece
	blocks map[blockName][]*piece // that have it
	pieces int
	count  int // blocks
}

func newWaiting(pieces, blocks int) waiting {
	w := waiting{maxPieces: pieces, maxBlocks: blocks}
	w.clear()
	return w
}

func (w *waiting) clear() {
	w.order, w.pieces, w.count = nil, 0, 0
	w.parent, w.blocks = make(map[blockName][]*piece), make(map[blockName][]*piece)
}

// add has a piece wait. The oldest ones make room; it returns how many of them
// were dropped, the piece itself included if it is too large.
func (w *waiting) add(p *piece, now time.Time) (dropped int) {
	if len(p.hashes) > w.maxBlocks {
		return 1
	}
	for w.pieces >= w.maxPieces || w.count+len(p.hashes) > w.maxBlocks {
		w.drop(w.oldest())
		dropped++
	}
	p.since, p.gone = now, false
	if len(w.order) > 2*w.pieces+64 {
		w.order = slices.DeleteFunc(w.order, func(p *piece) bool { return p.gone })
	}
	w.order = append(w.order, p)
	w.pieces++
	w.count += len(p.hashes)
	above := blockName{p.shard, p.behind}
	w.parent[above] = append(w.parent[above], p)
	for _, h := range p.hashes {
		name := blockName{p.shard, h}
		w.blocks[name] = append(w.blocks[name], p)
	}
	return dropped
}

// oldest is the first that waits. There is one.
func (w *waiting) oldest() *piece {
	for w.order[0].gone {
		w.order = w.order[1:]
	}
	return w.order[0]
}

// drop ends the wait of a piece.
func (w *waiting) drop(p *piece) {
	p.gone = true
	w.pieces--
	w.count -= len(p.hashes)
	remove(w.parent, blockName{p.shard, p.behind}, p)
	for _, h := range p.hashes {
		remove(w.blocks, blockName{p.shard, h}, p)
	}
	if w.pieces == 0 {
		w.order = nil
	}
}

func remove(all map[blockName][]*piece, name blockName, p *piece) {
	list := all[name]
	for i := range list {
		if list[i] == p {
			list[i] = list[len(list)-1]
			list = list[:len(list)-1]
			break
		}
	}
	if len(list) == 0 {
		delete(all, name)
	} else {
		all[name] = list
	}
}

// below takes out the pieces that wait for a block.
func (w *waiting) below(name blockName) []*piece {
	if w.pieces == 0 {
		return nil
	}
	list := append([]*piece(nil), w.parent[name]...)
	for _, p := range list {
		w.drop(p)
	}
	return list
}

// removed cuts a block that is gone from a medium, and those behind it, from the
// pieces that wait with it there.
func (w *waiting) removed(name blockName, at index.At) {
	for _, p := range append([]*piece(nil), w.blocks[name]...) {
		if p.at != at {
			continue
		}
		w.drop(p)
		for i, h := range p.hashes {
			if h == name.hash {
				p.hashes = p.hashes[:i]
				p.tokens = p.tokens[:min(len(p.tokens), i*p.each+p.shard.Config().Hash.Ahead())]
				break
			}
		}
		if len(p.hashes) > 0 {
			w.add(p, p.since) // it has its age, at the end of the order
		}
	}
}

// take takes out all, oldest first.
func (w *waiting) take() []*piece {
	var all []*piece
	for _, p := range w.order {
		if !p.gone {
			all = append(all, p)
		}
	}
	w.clear()
	return all
}
