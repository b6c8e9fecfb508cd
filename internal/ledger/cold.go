package ledger

import (
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/policy"
)

// cold is what goes before anything that a policy would choose: the ends of
// prompts of which somebody has said that nobody will ask for them again. They
// are in a queue, in which some are not cold any more.
type cold struct {
	first, last uint32 // of the queue
	n           int    // in the queue
	links       []*[1 << pageBits]coldLink
}

// coldLink is an entry's place in the queue. Pages of entries of which none
// was ever cold have none.
type coldLink struct {
	next   uint32
	queued bool
	cold   bool
}

// coldLook is how many of the queue one victim looks at: what is held or has a
// kid goes to its back.
const coldLook = 8

// link returns the link of id, or nil.
func (c *cold) link(id uint32) *coldLink {
	if page := int(id >> pageBits); page < len(c.links) && c.links[page] != nil {
		return &c.links[page][id&(1<<pageBits-1)]
	}
	return nil
}

func (c *cold) has(id uint32) bool {
	l := c.link(id)
	return l != nil && l.cold
}

// drop makes id like any other; its place in the queue comes by.
func (c *cold) drop(id uint32) {
	if l := c.link(id); l != nil {
		l.cold = false
	}
}

// push makes id cold, at the back of the queue unless it is in it.
func (c *cold) push(id uint32) {
	page := int(id >> pageBits)
	for len(c.links) <= page {
		c.links = append(c.links, nil)
	}
	if c.links[page] == nil {
		c.links[page] = new([1 << pageBits]coldLink)
	}
	l := c.link(id)
	l.cold = true
	if l.queued {
		return
	}
	l.queued = true
	if c.n == 0 {
		c.first = id
	} else {
		c.link(c.last).next = id
	}
	c.last = id
	c.n++
}

// pop takes out the first of the queue, and reports whether it is still cold.
func (c *cold) pop() (id uint32, still bool) {
	id = c.first
	l := c.link(id)
	still = l.cold
	c.first = l.next
	*l = coldLink{}
	c.n--
	return id, still
}

// next takes out the first that ok accepts.
func (c *cold) next(ok func(policy.ID) bool) (id uint32, found bool) {
	for range min(coldLook, c.n) {
		switch id, still := c.pop(); {
		case !still:
		case ok(policy.ID(id)):
			return id, true
		default:
			c.push(id)
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
