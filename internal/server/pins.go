package server

import (
	"bytes"
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/kvstored/kvstored/internal/lean"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

// pins is all named protection. A name is good on every connection, with access
// rules on every connection of its user. Its chunks are charged to the
// connections that pinned it, and ends with them.
type pins struct {
	mu struct {
		sync.Mutex
		byName    map[string][]*pin // one for each connection that pinned the name
		peak      int               // of byName
		bySession map[*session]map[string]*pin
	}
}

// pin is what one connection protects under one name; the mutex of pins
// guards it while it is in the table, and the goroutine that took it out owns it.
type pin struct {
	session *session
	name    string
	refs    map[ledger.ID]tier.Ref
	of      map[key.SpaceID]pinned // what refs are, by space
	cost    int64                  // charged to the connection
	until   time.Time
	expiry  *time.Timer
}

// What a pin costs besides its name, and each of its chunks.
const pinBytes, pinChunkBytes = 1 << 10, 96

// pinned is a number of chunks and their payload bytes.
type pinned struct {
	chunks int
	bytes  uint64
}

// add takes over refs, and starts the age of the pin anew.
func (ps *pins) add(c *session, space key.SpaceID, name string, refs []tier.Ref, age time.Duration) error {
	cost := pinBytes + int64(len(name)) + pinChunkBytes*int64(len(refs))
	err := c.account.Charge(cost) // may wait, so without the mutex
	if err == nil {
		refs, cost, err = ps.addCharged(c, space, name, refs, age, cost)
		c.account.Release(cost)
	}
	c.server.o.Stack.Release(c.owner, ledger.Pin, refs)
	return err
}

// addCharged is add for what cost is charged for. It returns the refs that it does
// not keep, and what they were charged.
func (ps *pins) addCharged(c *session, space key.SpaceID, name string, refs []tier.Ref, age time.Duration, cost int64) ([]tier.Ref, int64, error) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	p, err := ps.open(c, name, age)
	if err != nil {
		return refs, cost, err
	}
	rest := p.keep(space, refs)
	kept := pinChunkBytes * int64(len(refs)-len(rest))
	if p.cost == 0 {
		kept += pinBytes + int64(len(name))
	}
	p.cost += kept
	p.until = time.Now().Add(age)
	p.expiry.Reset(age)
	return rest, cost - kept, nil
}

// open returns the pin of a connection and a name, a new one if need be;
// called with the mutex held.
func (ps *pins) open(c *session, name string, age time.Duration) (*pin, error) {
	own := ps.mu.bySession[c]
	if p := own[name]; p != nil {
		return p, nil
	}
	if c.isClosed() { // it has dropped its pins, or will
		return nil, tier.ErrClosed
	}
	if len(own) >= maxLive {
		return nil, refuse(wire.CodeOverBudget, "this connection has %d pins; unpin some first", maxLive)
	}
	p := &pin{session: c, name: name, refs: make(map[ledger.ID]tier.Ref), of: make(map[key.SpaceID]pinned)}
	p.expiry = time.AfterFunc(age, func() { c.whileOpen(func() { ps.expire(p) }) })
	ps.mu.byName[name] = append(ps.mu.byName[name], p)
	if own == nil {
		own = make(map[string]*pin)
		ps.mu.bySession[c] = own
	}
	own[name] = p
	return p, nil
}

// keep keeps the refs that are not yet pinned and returns the others.
func (p *pin) keep(space key.SpaceID, refs []tier.Ref) (rest []tier.Ref) {
	sum := p.of[space]
	for _, r := range refs {
		if _, twice := p.refs[r.ID]; twice {
			rest = append(rest, r)
		} else {
			p.refs[r.ID] = r
			sum.chunks++
			sum.bytes += uint64(r.Block.Len())
		}
	}
	p.of[space] = sum
	return rest
}

// remove takes p out of the table; called with the mutex held. It reports
// whether p was there.
func (ps *pins) remove(p *pin) bool {
	own := ps.mu.bySession[p.session]
	if own[p.name] != p {
		return false
	}
	if delete(own, p.name); len(own) == 0 {
		delete(ps.mu.bySession, p.session)
	}
	all := slices.DeleteFunc(ps.mu.byName[p.name], func(q *pin) bool { return q == p })
	if ps.mu.byName[p.name] = all; len(all) == 0 {
		lean.Delete(&ps.mu.byName, p.name, &ps.mu.peak)
	}
	return true
}

// release gives back what p protected, and returns how many chunks that were.
func (p *pin) release() int {
	p.expiry.Stop()
	refs := make([]tier.Ref, 0, len(p.refs))
	for _, r := range p.refs {
		refs = append(refs, r)
	}
	c := p.session
	c.server.o.Stack.Release(c.owner, ledger.Pin, refs)
	c.account.Release(p.cost)
	return len(refs)
}

// expire ends p unless it was pinned again this very moment.
func (ps *pins) expire(p *pin) {
	ps.mu.Lock()
	ends := !time.Now().Before(p.until) && ps.remove(p)
	ps.mu.Unlock()
	if ends {
		p.release()
	}
}

// end ends the pins of a name for which may holds, and returns how many chunks they
// protected.
func (ps *pins) end(name string, may func(*pin) bool) int {
	return ps.endAll(func() (list []*pin) {
		for _, p := range ps.mu.byName[name] {
			if may(p) {
				list = append(list, p)
			}
		}
		return list
	})
}

// drop ends all pins of a connection, and returns how many chunks they
// protected.
func (ps *pins) drop(c *session) int {
	return ps.endAll(func() []*pin { return slices.Collect(maps.Values(ps.mu.bySession[c])) })
}

// endAll ends the pins that list, called with the mutex held, returns.
func (ps *pins) endAll(list func() []*pin) (chunks int) {
	ps.mu.Lock()
	all := list()
	for _, p := range all {
		ps.remove(p)
	}
	ps.mu.Unlock()
	for _, p := range all {
		chunks += p.release()
	}
	return chunks
}

// names lists the names there are.
func (ps *pins) names() []string {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	return slices.Collect(maps.Keys(ps.mu.byName))
}

// bytes sums the payloads that a connection has pinned, each chunk once under
// however many names.
func (ps *pins) bytes(c *session) (n uint64) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	seen := make(map[ledger.ID]bool)
	for _, p := range ps.mu.bySession[c] {
		for id, r := range p.refs {
			if !seen[id] {
				seen[id] = true
				n += uint64(r.Block.Len())
			}
		}
	}
	return n
}

// list describes the first n pins, by name, connection and space, and returns how
// many there are besides.
func (ps *pins) list(n int) (out []Pin, more int) {
	names := ps.names()
	slices.Sort(names)
	for _, name := range names {
		of := ps.named(name)
		listed := min(len(of), n-len(out))
		out, more = append(out, of[:listed]...), more+len(of)-listed
	}
	return out, more
}

// named describes the pins of a name, by connection and space.
func (ps *pins) named(name string) (out []Pin) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for _, p := range ps.mu.byName[name] {
		left := max(0, time.Until(p.until))
		for space, n := range p.of {
			out = append(out, Pin{Name: name, Space: space, Connection: p.session.id, Chunks: n.chunks, Bytes: n.bytes, Left: left})
		}
	}
	slices.SortFunc(out, func(a, b Pin) int {
		return cmp.Or(cmp.Compare(a.Connection, b.Connection), bytes.Compare(a.Space[:], b.Space[:]))
	})
	return out
}
