package server

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/internal/stack"
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
		of map[*session]map[string]*pin // by name; of sessions that have some
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
	own := ps.mu.of[c]
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
	if own == nil {
		own = make(map[string]*pin)
		ps.mu.of[c] = own
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
	own := ps.mu.of[p.session]
	if own[p.name] != p {
		return false
	}
	if delete(own, p.name); len(own) == 0 {
		delete(ps.mu.of, p.session)
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
		for _, own := range ps.mu.of {
			if p := own[name]; p != nil && may(p) {
				list = append(list, p)
			}
		}
		return list
	})
}

// drop ends all pins of a connection, and returns how many chunks they
// protected.
func (ps *pins) drop(c *session) int {
	return ps.endAll(func() []*pin { return slices.Collect(maps.Values(ps.mu.of[c])) })
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

// sessions lists the connections that have pins.
func (ps *pins) sessions() []*session {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	return slices.Collect(maps.Keys(ps.mu.of))
}

// bytes sums the payloads that a connection has pinned, each chunk once under
// however many names.
func (ps *pins) bytes(c *session) (n uint64) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	seen := make(map[ledger.ID]bool)
	for _, p := range ps.mu.of[c] {
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
	for _, c := range ps.sessions() {
		out = ps.describe(out, c)
	}
	slices.SortFunc(out, func(a, b Pin) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Connection, b.Connection), cmp.Compare(a.Space, b.Space))
	})
	return first(out, n)
}

// describe adds the pins of a connection.
func (ps *pins) describe(out []Pin, c *session) []Pin {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for _, p := range ps.mu.of[c] {
		left := max(0, time.Until(p.until)).Seconds()
		for space, n := range p.of {
			out = append(out, Pin{p.name, space.String(), c.id, n.chunks, n.bytes, left})
		}
	}
	return out
}

func handlePin(c *reader, h wire.Header, req wire.PinRequest) (wire.Message, error) {
	if req.LookupID == "" {
		return nil, refuse(wire.CodeBadRequest, "a pin needs a lookup id, or nobody can end it")
	}
	var chain key.Chain
	if err := c.chain(&chain, &req.Chain); err != nil {
		return nil, err
	}
	limit := c.server.settings().PinMaxAge
	if want := time.Duration(req.MaxAgeMillis) * time.Millisecond; want > 0 {
		limit = min(limit, want)
	}
	pinned, err := addPin(c.session, &chain, chain.Skip, chain.Len(), req.LookupID, limit)
	if err != nil && pinned.Chunks == 0 {
		return nil, err
	}
	return &wire.PinReply{Pinned: countOf(pinned)}, nil
}

func handleUnpin(c *reader, h wire.Header, req wire.UnpinRequest) (wire.Message, error) {
	n := c.server.pins.end(req.LookupID, c.endsPin)
	return &wire.ChunksReply{Chunks: uint64(n)}, nil
}

// addPin pins the leading run in DRAM of chunks from..to, as far as budgets
// allow.
func addPin(c *session, chain *key.Chain, from, to int, name string, age time.Duration) (stack.Count, error) {
	refs := make([]tier.Ref, to-from)
	n, err := c.server.o.Stack.Hold(c.owner, ledger.Pin, chain, from, to, refs)
	var pinned stack.Count
	if n == 0 {
		return pinned, err
	}
	if err := c.server.pins.add(c, chain.Space, name, refs[:n], age); err != nil {
		return pinned, err
	}
	for _, t := range chain.Tokens[from : from+n] {
		pinned.Chunks++
		pinned.Tokens += uint64(t)
	}
	return pinned, err
}

// pinReady pins chunks from..to of a job's prefix, if it is to be pinned.
func (j *job) pinReady(from, to int) {
	for r := range j.chains {
		j.pinChunks(&j.chains[r], j.skip()+from, j.skip()+to)
	}
}

// pinChunks pins chunks from..to of a chain, if the job is to be pinned. The job holds
// them, and does not show them before it has returned: with the end of a job in hand its
// client may end the pin.
func (j *job) pinChunks(chain *key.Chain, from, to int) {
	if j.pin == "" || from == to || !j.beginWait() {
		return
	}
	defer j.waits.Done()
	c := j.session
	if _, err := addPin(c, chain, from, to, j.pin, c.server.settings().PinMaxAge); err != nil {
		c.log.Debug().Err(err).Str("lookup_id", j.pin).Msg("pinned less than was matched")
	}
}
