package server

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/kvstored/kvstored/internal/access"
	"github.com/kvstored/kvstored/internal/missing"
	"github.com/kvstored/kvstored/internal/retain"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

// What administrators see and take of the server's clients. Package admin asks for
// it; nothing here looks at rights, but for Spaces.

// Pin is what one connection protects of one space under one name.
type Pin struct {
	Name       string
	Space      key.SpaceID
	Connection uint64
	Chunks     int
	Bytes      uint64        // payload
	Left       time.Duration // until it ends by age
}

// Holder is a connection that holds something.
type Holder struct {
	Connection uint64
	UID        uint32
	Name       string // as in its hello
	LeaseBytes uint64 // leases and fills, as budgets count them
	PinBytes   uint64
}

// Access is the present policy.
func (s *Server) Access() *access.Policy { return s.settings().Access }

// Held lists the pins, by name, connection and space, and the connections that hold
// something, by age: of each the first most. more is how many are left out.
func (s *Server) Held(most int) (pins []Pin, holders []Holder, more int) {
	pins, more = s.pins.list(most)
	for _, c := range s.sessions.all() {
		h := Holder{Connection: c.id, UID: c.uid, Name: c.name, LeaseBytes: c.leasedBytes(), PinBytes: s.pins.bytes(c)}
		switch {
		case h.LeaseBytes+h.PinBytes == 0:
		case len(holders) < most:
			holders = append(holders, h)
		default:
			more++
		}
	}
	return pins, holders, more
}

// RevokePin ends the pins of a name, on every connection, and returns how many
// chunks they protected.
func (s *Server) RevokePin(name string) int {
	return s.pins.end(name, func(*pin) bool { return true })
}

// RevokePins ends all pins, and returns how many chunks they protected.
func (s *Server) RevokePins() (chunks int) {
	for _, name := range s.pins.names() {
		chunks += s.RevokePin(name)
	}
	return chunks
}

// RevokeConnection frees all that a connection holds, and returns how many chunks
// that was; false where there is no such connection. The connection stays and may
// hold something else.
func (s *Server) RevokeConnection(id uint64) (chunks int, ok bool) {
	c := s.sessions.get(id)
	if c == nil {
		return 0, false
	}
	return c.revokeAll(), true
}

// Clients lists the first most clients, the largest holder first; more is how many are
// left out.
func (s *Server) Clients(most int) (list []Client, more int) {
	type as struct {
		uid  uint32
		name string
	}
	at := make(map[as]int)
	for _, c := range s.sessions.all() {
		i, known := at[as{c.uid, c.name}]
		if !known {
			i = len(list)
			at[as{c.uid, c.name}] = i
			list = append(list, Client{UID: c.uid, Name: c.name})
		}
		jobs, fills := c.live()
		of := &list[i]
		of.Connections++
		of.Memory += c.account.Bytes()
		of.Leases += len(jobs) + len(fills)
		of.LeaseBytes += c.leasedBytes()
		of.PinBytes += s.pins.bytes(c)
	}
	slices.SortStableFunc(list, func(a, b Client) int {
		return cmp.Or(cmp.Compare(b.Held(), a.Held()), cmp.Compare(b.Connections, a.Connections))
	})
	return first(list, most)
}

// Leases lists the first most jobs and fills, those that hold most first; with loading
// only those whose prefix may still grow, the oldest first. more is how many are left out.
func (s *Server) Leases(most int, loading bool) (list []Lease, more int) {
	now := time.Now()
	for _, c := range s.sessions.all() {
		jobs, fills := c.live()
		for _, j := range jobs {
			if l := watchJob(j, now); l.Loading || !loading {
				list = append(list, l)
			}
		}
		for _, f := range fills {
			if !loading {
				list = append(list, watchFill(f, now))
			}
		}
	}
	slices.SortStableFunc(list, func(a, b Lease) int {
		if loading {
			return cmp.Compare(b.Age, a.Age)
		}
		return cmp.Compare(b.Bytes, a.Bytes)
	})
	list, more = first(list, most)
	for i := range list {
		list[i].Model = s.catalog.space(list[i].Space).Model
	}
	return list, more
}

// SpaceUse is a space, how much is stored of it, and how many connections have it
// open.
type SpaceUse struct {
	ID          key.SpaceID
	Chunks      int64         // known, in any tier
	HotBytes    int64         // that they occupy in DRAM
	DiskBytes   int64         // and on disk
	MaxAge      time.Duration // that they may have, while the space is open; 0: any
	Connections uint32
	Opened      bool      // since the daemon started, and remembered
	Space       key.Space // then; with its SaltDigest, never its Salt
	Front       string    // the front end whose values these are; "" of clients' spaces
}

// A page of spaces ends behind the first that fills it.
const (
	spacesPageBytes = 256 << 10
	spaceUseBytes   = 128 // of a space without its texts, at most
)

// Spaces is the page of spaces whose ids come after one, of those that a user may
// know of; more is whether there are others behind it.
func (s *Server) Spaces(uid uint32, after key.SpaceID) (page []SpaceUse, more bool) {
	policy, chunks, ids := s.Access(), s.o.Stack.Spaces(), s.catalog.ids()
	for id := range chunks {
		ids = append(ids, id)
	}
	ids = slices.DeleteFunc(ids, func(id key.SpaceID) bool { return bytes.Compare(id[:], after[:]) <= 0 })
	slices.SortFunc(ids, func(a, b key.SpaceID) int { return bytes.Compare(a[:], b[:]) })
	ids = slices.Compact(ids)
	for filled := 0; len(ids) > 0 && filled < spacesPageBytes; ids = ids[1:] {
		use := SpaceUse{
			ID: ids[0], Chunks: int64(chunks[ids[0]]), HotBytes: s.o.Stack.HotBytes(ids[0]), DiskBytes: s.o.Stack.DiskBytes(ids[0]),
			MaxAge: s.o.Stack.MaxAge(ids[0]),
			Front:  s.o.Fronts[ids[0]],
		}
		text := s.catalog.describe(&use)
		if sees(policy, uid, &use) {
			filled += spaceUseBytes + text
			page = append(page, use)
		}
	}
	return page, len(ids) > 0
}

// MayPurge reports whether a user may delete everything of a space. Of one that was
// not opened since the start only the id is known, and not whose it is: that takes
// the right everywhere. The model is "" then.
func (s *Server) MayPurge(uid uint32, id key.SpaceID) (model string, ok bool) {
	policy := s.Access()
	model = s.catalog.space(id).Model
	return model, policy.Everywhere(uid)&access.Admin != 0 || model != "" && policy.Model(uid, model)&access.Admin != 0
}

// Claims is the table of claims.
func (s *Server) Claims() *retain.Table { return s.wishes.claims }

// Prompt is the prompt that an order is about. tier.ErrNotFound says that nothing is
// known of its session, or that its space was not opened, which tokens take.
func (s *Server) Prompt(o *Order) (*key.Chain, error) {
	switch {
	case o.Session != "":
		chains := s.wishes.sessions.get(asked{o.UID, sessionName(o.Space, o.Session)}, s.settings().Access)
		if chains == nil {
			return nil, fmt.Errorf("nothing is known of session %.80q of user %d in that space, or not any more: %w", o.Session, o.UID, tier.ErrNotFound)
		}
		return &chains[0], nil
	case len(o.Hashes) > 0:
		tokens := max(s.catalog.space(o.Space).ChunkTokens, 1)
		c := &key.Chain{Space: o.Space, Hashes: o.Hashes, Tokens: make([]uint32, len(o.Hashes))}
		for i := range c.Tokens {
			c.Tokens[i] = uint32(tokens)
		}
		return c, nil
	}
	space := s.catalog.space(o.Space)
	if space.Model == "" {
		return nil, fmt.Errorf("that space was not opened since the daemon started, and how its tokens are hashed is not known: %w", tier.ErrNotFound)
	}
	b, err := key.NewBuilder(space)
	if err != nil {
		return nil, err
	}
	c := new(key.Chain)
	return c, b.Tokens(c, o.Tokens, key.Options{SaveUnfull: o.Partial})
}

// RetainFor retains a prompt for a claimant, its user and name, as a client would.
// Priority 0 releases it. It returns how many chunks are retained, or were.
func (s *Server) RetainFor(o *Order, name string, c *key.Chain, priority uint8, d time.Duration) (int, error) {
	if priority == 0 {
		return s.wishes.claims.Release(retain.Claimant{UID: o.UID, Space: o.Space, Name: name}, c.Hashes), nil
	}
	return s.wishes.retain(o.UID, name, []key.Chain{*c}, 0, c.Len(), priority, d)
}

// Promote has the prompt of an order promoted to DRAM when no client loads.
func (s *Server) Promote(o *Order, c *key.Chain) {
	s.wishes.pauses.add([]key.Chain{*c}, time.Now())
}

// WhyPrompt says how much of the prompt of an order there is, and why not more.
func (s *Server) WhyPrompt(ctx context.Context, o *Order) (*Miss, error) {
	c, err := s.Prompt(o)
	if err != nil {
		return nil, err
	}
	m, err := s.o.Stack.Match(ctx, c, tier.All)
	if err != nil {
		return nil, err
	}
	miss := &Miss{UID: o.UID, Chunks: c.Len(), Got: m.Tokens, Chunk: m.Chunks, Why: s.o.Stack.Why(c, m.Chunks, tier.All)}
	for _, n := range c.Tokens {
		miss.Asked += uint64(n)
	}
	if last := c.Len() - 1; m.Chunks == last && len(o.Tokens) > 0 {
		miss.Partial = int(c.Tokens[last]) < s.catalog.space(o.Space).ChunkTokens
	}
	s.name(miss, c)
	return miss, nil
}

// WhyLookup says what came of the prompts that were asked for under a lookup id last, of
// each user that has used it. It is empty where none is remembered.
func (s *Server) WhyLookup(lookupID string) []*Miss {
	out := s.missesOf(s.recent.outcomes(lookupID))
	slices.SortFunc(out, func(a, b *Miss) int { return int(a.UID) - int(b.UID) })
	return out
}

// Misses lists the prompts that were asked for last under a lookup id and did not get all they
// asked for, newest first.
func (s *Server) Misses(most int) []*Miss { return s.missesOf(s.recent.shorter(most)) }

func (s *Server) missesOf(list []recentChain) (out []*Miss) {
	for _, r := range list {
		c := &r.chains[0]
		miss := &Miss{UID: r.uid, LookupID: r.lookupID, Chunks: c.Len() - c.Skip, Asked: r.outcome.asked, Got: r.outcome.got, Why: r.outcome.why}
		for left := int64(miss.Got); miss.Chunk < miss.Chunks && left > 0; miss.Chunk++ {
			left -= int64(c.Tokens[c.Skip+miss.Chunk])
		}
		at := *c
		at.Hashes, at.Tokens, at.Skip = c.Hashes[c.Skip:], c.Tokens[c.Skip:], 0
		s.name(miss, &at)
		out = append(out, miss)
	}
	return out
}

// name adds what the catalog knows to a miss of c.
func (s *Server) name(m *Miss, c *key.Chain) {
	here := s.catalog.space(c.Space)
	m.Space, m.Model = c.Space, here.Model
	if m.Why.Reason != missing.OtherSpace || m.Chunk >= c.Len() {
		return
	}
	for _, id := range s.o.Stack.SpacesWith(c.Key(m.Chunk), mostNearest) {
		there := s.catalog.space(id)
		n := Nearest{Space: id, Model: there.Model}
		if here.Model != "" && there.Model != "" {
			n.Differs = differences(&here, &there)
		}
		m.Nearest = append(m.Nearest, n)
	}
	slices.SortStableFunc(m.Nearest, func(a, b Nearest) int { return len(a.Differs) - len(b.Differs) })
}
