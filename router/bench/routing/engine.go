package main

import "container/list"

// request is one of a trace.
type request struct {
	at      float64 // seconds
	session uint64
	tokens  int
	output  int
	blocks  []uint64
}

// running is a request that an engine was given.
type running struct {
	*request
	said        int     // tokens that the router has said are there
	hit         int     // tokens that were there
	first, last float64 // when its first and its last token come
	started     bool    // its prefill has begun, so that the times are known
	reservation uint64
}

// engine computes one prefill at a time and has a cache by last use.
type engine struct {
	room    int // blocks
	rate    float64
	at      map[uint64]*list.Element
	order   *list.List // the last used at the front
	free    float64    // when its prefill is done
	busy    float64    // seconds
	waiting []*running // prefills to come
	active  []*running // prefills under way, and answers
}

func newEngine(room int, rate float64) *engine {
	return &engine{room: room, rate: rate, at: make(map[uint64]*list.Element), order: list.New()}
}

// known is how many leading blocks are in the cache.
func (e *engine) known(blocks []uint64) int {
	for i, b := range blocks {
		if e.at[b] == nil {
			return i
		}
	}
	return len(blocks)
}

// begin starts the first prefill that waits, and returns it.
func (e *engine) begin(blockTokens int, answer float64) *running {
	r := e.waiting[0]
	e.waiting = e.waiting[1:]
	begin := max(r.at, e.free)
	r.hit = min(e.known(r.blocks)*blockTokens, r.tokens-1)
	work := float64(r.tokens-r.hit) / e.rate
	r.first, r.started = begin+work, true
	r.last = r.first + float64(r.output)*answer
	e.free, e.busy = r.first, e.busy+work
	e.active = append(e.active, r)
	return r
}

// use puts a prompt into the cache; its end is let go first. It returns the blocks
// that had to go.
func (e *engine) use(blocks []uint64) (gone []uint64) {
	for i := len(blocks) - 1; i >= 0; i-- {
		if el := e.at[blocks[i]]; el != nil {
			e.order.MoveToFront(el)
		} else {
			e.at[blocks[i]] = e.order.PushFront(blocks[i])
		}
	}
	for e.order.Len() > e.room {
		b := e.order.Remove(e.order.Back()).(uint64)
		delete(e.at, b)
		gone = append(gone, b)
	}
	return gone
}
