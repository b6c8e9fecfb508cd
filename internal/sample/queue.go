package sample

import (
	"slices"
	"sync"

	"github.com/kvstored/kvstored/key"
)

// queueHashes bounds the queue. There are two of them, one of which is being read.
const queueHashes = 1 << 15

// item is a prompt in the queue.
type item struct {
	hashes       int // how many of the queue's are its own
	tokens, skip uint32
	chunk        uint32 // tokens of a whole chunk
	space        uint64
	stored       bool // it was not asked for, but is being stored
}

// batch is the prompts that came between two looks at the queue.
type batch struct {
	hashes  []uint64 // not mixed yet
	items   []item
	dropped uint64 // prompts that had no room
}

// queue hands prompts over from requests to the book.
type queue struct {
	wake chan struct{} // capacity 1: there is something in it
	mu   struct {
		sync.Mutex
		batch
	}
}

// put copies the hashes of a chain, or counts it as dropped.
func (q *queue) put(c *key.Chain, it item) {
	it.hashes, it.space = c.Len(), spaceOf(c)
	q.mu.Lock()
	first := len(q.mu.items) == 0 && q.mu.dropped == 0
	if len(q.mu.hashes)+it.hashes > queueHashes {
		q.mu.dropped++
	} else {
		at := len(q.mu.hashes)
		q.mu.hashes = slices.Grow(q.mu.hashes, it.hashes)[:at+it.hashes]
		for i, to := 0, q.mu.hashes[at:]; i < len(to); i++ {
			to[i] = fold(&c.Hashes[i]) ^ it.space
		}
		q.mu.items = append(q.mu.items, it)
	}
	q.mu.Unlock()
	if first {
		select {
		case q.wake <- struct{}{}:
		default:
		}
	}
}

// take exchanges the batch for an empty one, whose memory is used again.
func (q *queue) take(empty batch) batch {
	q.mu.Lock()
	defer q.mu.Unlock()
	full := q.mu.batch
	q.mu.batch = batch{hashes: empty.hashes[:0], items: empty.items[:0]}
	return full
}
