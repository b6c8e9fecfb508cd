package ledger

import (
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/policy"
)

// cold is what goes before anything that a policy would choose: the ends of
// prompts of which somebody has said that nobody will ask for them again.
type cold struct {
	queue []uint32 // what goes first in front; some may not be in any more
	in    []uint64 // a bit for each entry
}

// coldLook is how many of the queue one victim looks at: what is held or has a
// kid goes to its back.
const coldLook = 8

func (c *cold) has(id uint32) bool {
	return int(id/64) < len(c.in) && c.in[id/64]&(1<<(id%64)) != 0
}

func (c *cold) drop(id uint32) {
	if c.has(id) {
		c.in[id/64] &^= 1 << (id % 64)
	}
}

func (c *cold) push(id uint32) {
	for len(c.in) <= int(id/64) {
		c.in = append(c.in, 0)
	}
	c.in[id/64] |= 1 << (id % 64)
	c.queue = append(c.queue, id)
}

// compact forgets what is not in any more, and what is there twice.
func (c *cold) compact() {
	kept := c.queue[:0]
	for _, id := range c.queue {
		if c.has(id) {
			c.drop(id)
			kept = append(kept, id)
		}
	}
	c.queue = nil
	for _, id := range kept {
		c.push(id)
	}
}

// next takes out the first that ok accepts.
func (c *cold) next(ok func(policy.ID) bool) (id uint32, found bool) {
	for range min(coldLook, len(c.queue)) {
		id, c.queue = c.queue[0], c.queue[1:]
		switch {
		case !c.has(id):
		case ok(policy.ID(id)):
			c.drop(id)
			return id, true
		default:
			c.queue = append(c.queue, id)
		}
	}
	return 0, false
}

// Cool makes the own end of a chain the first to go: its chunks up to the last
// one that others hang on, too. A use makes a chunk like any other again. A
// policy that plans is left alone: it was told with Announce.
func (l *Ledger) Cool(space key.SpaceID, hs []key.Hash) {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := &l.mu.book
	if b.ranks[everything].silent {
		return
	}
	hs = hs[:min(len(hs), maxRound)]
	own := b.ownFrom(space, hs)
	for i := len(hs) - 1; i >= own; i-- {
		id := b.find(key.Key{Space: space, Hash: hs[i]})
		if id != 0 && b.entries.at(id).life == resident && !b.cold.has(id) {
			b.cold.push(id)
		}
	}
	if len(b.cold.queue) > 2*b.count.Entries+maxRound {
		b.cold.compact()
	}
}

// ownFrom returns which chunks of a chain are its own: from the number on,
// none has a kid here that is not of the chain.
func (b *book) ownFrom(space key.SpaceID, hs []key.Hash) int {
	below := uint32(0)
	for i := len(hs) - 1; i >= 0; i-- {
		id := b.find(key.Key{Space: space, Hash: hs[i]})
		e := b.entries.at(id)
		others := e.kids
		if id != 0 && below != 0 && b.entries.at(below).parent == id {
			others--
		}
		if id != 0 && others > 0 {
			return i + 1
		}
		below = 0
		if life := e.life; life == filling || life == resident {
			below = id
		}
	}
	return 0
}
