package server

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/kvstored/kvstored/internal/access"
	"github.com/kvstored/kvstored/internal/explain"
	"github.com/kvstored/kvstored/internal/server/hint"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

// What administrators see and take of the server's clients, as package admin tells it in
// JSON; nothing here looks at rights, but for Spaces.

// Holder is a connection that holds something.
type Holder struct {
	Connection uint64 `json:"connection"`
	UID        uint32 `json:"uid"`
	Name       string `json:"name"`        // as in its hello
	LeaseBytes uint64 `json:"lease_bytes"` // leases and fills, as budgets count them
	PinBytes   uint64 `json:"pin_bytes"`   // so too
}

// Access is the present policy.
func (s *Server) Access() *access.Policy { return s.settings().Access }

// Held lists the pins, by name, connection and space, and the connections that hold
// something, by age: of each the first most. more is how many are left out.
func (s *Server) Held(most int) (pins []hint.Held, holders []Holder, more int) {
	pins, more = s.hints.claims.List(true, most)
	for _, c := range s.sessions.all() {
		h := Holder{Connection: c.id, UID: c.uid, Name: c.name}
		h.LeaseBytes, h.PinBytes = c.holds()
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

// RevokePins ends the pins of which is says so, and returns how many chunks they protected.
func (s *Server) RevokePins(is func(*hint.Claimant) bool) int {
	return s.hints.claims.End(0, is)
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
		leased, pinned := c.holds()
		of.LeaseBytes += leased
		of.PinBytes += pinned
	}
	slices.SortStableFunc(list, func(a, b Client) int {
		return cmp.Or(cmp.Compare(b.held(), a.held()), cmp.Compare(b.Connections, a.Connections))
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
			return cmp.Compare(b.AgeSeconds, a.AgeSeconds)
		}
		return cmp.Compare(b.Bytes, a.Bytes)
	})
	list, more = first(list, most)
	for i := range list {
		list[i].Model = s.catalog.space(list[i].space).Model
	}
	return list, more
}

// SpaceUse is a space, what is stored of it, and how many connections have it open.
type SpaceUse struct {
	Space       string    `json:"space"`  // its id, 32 hex digits
	Chunks      int64     `json:"chunks"` // known, in any tier
	HotBytes    int64     `json:"dram_bytes"`
	DiskBytes   int64     `json:"disk_bytes"`
	MaxAge      float64   `json:"max_age_seconds,omitempty"` // of its chunks, while it is open; 0: any
	Connections uint32    `json:"connections"`               // that have it open
	Front       string    `json:"front,omitempty"`           // the front end whose values these are
	Distrusted  time.Time `json:"distrusted,omitzero"`       // since then all of it is a miss
	Opened      *Opened   `json:"opened"`                    // null: not since the daemon started
}

// Opened is as what a space was opened, but for its salt.
type Opened struct {
	Model       string            `json:"model"`
	Revision    string            `json:"revision,omitempty"`
	LoRA        string            `json:"lora,omitempty"`
	World       int               `json:"world"`
	Worker      int               `json:"worker"`
	DType       string            `json:"dtype"`
	ChunkTokens int               `json:"chunk_tokens"`
	Method      string            `json:"method"`
	Group       string            `json:"group,omitempty"`
	Salted      bool              `json:"salted"`
	Tags        map[string]string `json:"tags,omitempty"`
}

func openedOf(s *key.Space) *Opened {
	out := &Opened{
		Model: s.Model, Revision: s.Revision, LoRA: s.LoRA, World: s.World, Worker: s.Worker, DType: s.DType,
		ChunkTokens: s.ChunkTokens, Method: string(s.Method), Group: s.Group, Salted: s.SaltDigest != key.Hash{},
		Tags: make(map[string]string),
	}
	for _, t := range s.Tags {
		out.Tags[t.Name] = t.Value
	}
	return out
}

// A page of spaces ends behind the first that fills it.
const (
	spacesPageBytes = 256 << 10
	spaceUseBytes   = 128 // of a space without its texts, at most
)

// Spaces is the page of spaces whose ids come after one, of those that a user may
// know of; more is whether there are others behind it.
func (s *Server) Spaces(uid uint32, after key.SpaceID) (page []SpaceUse, more bool) {
	chunks, ids := s.o.Store.Operator.Spaces(), s.catalog.ids()
	distrusted := s.o.Store.Operator.Distrusted().All()
	ids = slices.AppendSeq(ids, maps.Keys(distrusted))
	ids = slices.AppendSeq(ids, maps.Keys(chunks))
	ids = slices.DeleteFunc(ids, func(id key.SpaceID) bool { return bytes.Compare(id[:], after[:]) <= 0 })
	slices.SortFunc(ids, func(a, b key.SpaceID) int { return bytes.Compare(a[:], b[:]) })
	ids = slices.Compact(ids)
	for filled := 0; len(ids) > 0 && filled < spacesPageBytes; ids = ids[1:] {
		id := ids[0]
		use := SpaceUse{
			Space: id.String(), Chunks: int64(chunks[id]), HotBytes: s.o.Store.Operator.HotBytes(id), DiskBytes: s.o.Store.Operator.DiskBytes(id),
			MaxAge: s.o.Store.Operator.MaxAge(id).Seconds(), Connections: s.catalog.listed(id).connections, Distrusted: distrusted[id].Since, Front: s.o.Fronts[id],
		}
		space := s.catalog.space(id)
		if space.Model != "" && use.Front == "" {
			use.Opened = openedOf(&space)
		}
		may := s.rightsIn(uid, id)
		if may&access.Admin != 0 || may&access.Read != 0 && (use.Opened != nil || use.Front != "") {
			filled += spaceUseBytes + textBytes(&space)
			page = append(page, use)
		}
	}
	return page, len(ids) > 0
}

// MayPurge reports whether a user may delete everything of a space. Of one that was
// not opened since the start only the id is known, and not whose it is: that takes
// the right everywhere. The model is "" then.
func (s *Server) MayPurge(uid uint32, id key.SpaceID) (model string, ok bool) {
	return s.catalog.listed(id).name, s.has(uid, access.Admin, id)
}

// Claims is the table of claims.
func (s *Server) Claims() *hint.Claims { return s.hints.claims }

// Prompt is the prompt that an order is about. tier.ErrNotFound says that nothing is
// known of its session, or that its space was not opened, which tokens take.
func (s *Server) Prompt(o *Order) (*key.Chain, error) {
	switch {
	case o.Session != "":
		chains := s.hints.sessions.get(asked{o.UID, sessionName(o.Space, o.Session)}, s.settings().Access)
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

// RetainFor claims a prompt for a user under a name, as a client would, and returns how many
// chunks are claimed.
func (s *Server) RetainFor(o *Order, name string, c *key.Chain, d time.Duration) (int, error) {
	return s.hints.retain(o.UID, name, []key.Chain{*c}, 0, c.Len(), d)
}

// Done does as where a client says that a prompt is done.
func (s *Server) Done(o *Order, name string, c *key.Chain) {
	s.hints.done(o.UID, name, []key.Chain{*c}, true)
}

// Promote has the prompt of an order promoted to DRAM when no client loads.
func (s *Server) Promote(o *Order, c *key.Chain) {
	s.hints.pauses.add([]key.Chain{*c}, 0)
}

// WhyPrompt says how much of the prompt of an order there is, and why not more.
func (s *Server) WhyPrompt(ctx context.Context, o *Order) ([]Miss, error) {
	c, err := s.Prompt(o)
	if err != nil {
		return nil, err
	}
	m, err := s.o.Store.Lookups.Match(ctx, c, tier.All)
	if err != nil {
		return nil, err
	}
	miss := Miss{UID: o.UID, Chunks: c.Len(), Tokens: c.TokensIn(0, c.Len()), Got: m.Tokens, Chunk: m.Chunks}
	if last := c.Len() - 1; m.Chunks == last && len(o.Tokens) > 0 {
		miss.Partial = int(c.Tokens[last]) < s.catalog.space(o.Space).ChunkTokens
	}
	s.explain(&miss, c, s.o.Store.Lookups.Why(c, m.Chunks, tier.All))
	return []Miss{miss}, nil
}

// WhyLookup says what came of the prompts that were asked for under a lookup id last, of
// each user that has used it. It is empty where none is remembered.
func (s *Server) WhyLookup(lookupID string) []Miss {
	out := s.missesOf(s.recent.outcomes(lookupID))
	slices.SortFunc(out, func(a, b Miss) int { return int(a.UID) - int(b.UID) })
	return out
}

// Misses lists the prompts that were asked for last under a lookup id and did not get all they
// asked for, newest first.
func (s *Server) Misses(most int) []Miss { return s.missesOf(s.recent.shorter(most)) }

func (s *Server) missesOf(list []recentChain) []Miss {
	out := []Miss{}
	for _, r := range list {
		c := &r.chains[0]
		miss := Miss{UID: r.uid, LookupID: r.lookupID, Chunks: c.Len() - c.Skip, Tokens: r.outcome.asked, Got: r.outcome.got}
		for left := int64(miss.Got); miss.Chunk < miss.Chunks && left > 0; miss.Chunk++ {
			left -= int64(c.Tokens[c.Skip+miss.Chunk])
		}
		at := *c
		at.Hashes, at.Tokens, at.Skip = c.Hashes[c.Skip:], c.Tokens[c.Skip:], 0
		s.explain(&miss, &at, r.outcome.why)
		out = append(out, miss)
	}
	return out
}

// explain says why the chunk is missing that a miss of c is about, and what the catalog knows.
func (s *Server) explain(m *Miss, c *key.Chain, why explain.Absence) {
	here := s.catalog.space(c.Space)
	m.Space, m.Model, m.Nearest = c.Space.String(), here.Model, []Nearest{}
	m.Reason, m.Tier, m.Policy, m.Since = why.Name(), why.TierName(), why.Policy, why.Since
	m.Sentence = explain.Explain(&why, time.Now())
	if at := why.Time(); !at.IsZero() {
		m.Left = &at
	}
	if why.Reason != explain.OtherSpace || m.Chunk >= c.Len() {
		return
	}
	for _, id := range s.o.Store.Lookups.SpacesWith(c.Key(m.Chunk), mostNearest) {
		there := s.catalog.space(id)
		n := Nearest{Space: id.String(), Model: there.Model, Differs: []Difference{}}
		if here.Model != "" && there.Model != "" {
			n.Differs = differences(&here, &there)
		}
		m.Nearest = append(m.Nearest, n)
	}
	slices.SortStableFunc(m.Nearest, func(a, b Nearest) int { return len(a.Differs) - len(b.Differs) })
}

// Order is what an orchestrator wants of a prompt of one space and user: of the last
// one of Session, or that of Hashes, or that of Tokens.
type Order struct {
	UID     uint32
	Space   key.SpaceID
	Session string
	Hashes  []key.Hash
	Tokens  []uint32
	Partial bool // of tokens: a last chunk that is not a whole one counts too
}

// Miss is why part of a prompt was missed, or is missing now.
type Miss struct {
	LookupID string     `json:"lookup_id"` // of a prompt that was asked for under one
	UID      uint32     `json:"uid"`
	Space    string     `json:"space"`
	Model    string     `json:"model"` // "" where the space was not opened since the start
	Chunks   int        `json:"chunks"`
	Tokens   uint64     `json:"tokens"`
	Got      uint64     `json:"got_tokens"`    // of these
	Chunk    int        `json:"missing_chunk"` // the first; chunks where none is, or that is not known
	Partial  bool       `json:"partial"`       // it is the last, and not a whole one: stored only where its client asks for that
	Reason   string     `json:"reason"`
	Tier     string     `json:"tier"`          // that had it, has it or declined it; none
	Policy   string     `json:"policy"`        // that chose an evicted one
	Left     *time.Time `json:"left"`          // when it left its last tier, or was declined
	Since    uint64     `json:"evicted_since"` // bytes that the tier has evicted since then
	Nearest  []Nearest  `json:"nearest"`       // spaces that have the chunk, of other_space
	Sentence string     `json:"sentence"`
}

// Nearest is another space that has a missing chunk.
type Nearest struct {
	Space   string       `json:"space"`
	Model   string       `json:"model"`
	Differs []Difference `json:"differs"` // none where one of the two spaces was not opened since the start
}

// Difference is a field that two spaces differ in, with what it is in each.
type Difference struct {
	Field string `json:"field"`
	Here  string `json:"here"`
	There string `json:"there"`
}

// mostNearest bounds how many spaces a Miss names.
const mostNearest = 8

// differences are the fields that two spaces differ in. Spaces with other salts or methods
// have no chunk in common.
func differences(a, b *key.Space) []Difference {
	out := []Difference{}
	for _, f := range []Difference{
		{"model", a.Model, b.Model},
		{"revision", a.Revision, b.Revision},
		{"lora", a.LoRA, b.LoRA},
		{"world", fmt.Sprint(a.World), fmt.Sprint(b.World)},
		{"worker", fmt.Sprint(a.Worker), fmt.Sprint(b.Worker)},
		{"dtype", a.DType, b.DType},
		{"chunk_tokens", fmt.Sprint(a.ChunkTokens), fmt.Sprint(b.ChunkTokens)},
		{"method", string(a.Method), string(b.Method)},
		{"group", a.Group, b.Group},
		{"tags", tagsText(a.Tags), tagsText(b.Tags)},
	} {
		if f.Here != f.There {
			out = append(out, f)
		}
	}
	return out
}

func tagsText(tags []key.Tag) (s string) {
	for _, t := range tags {
		s += t.Name + "=" + t.Value + " "
	}
	return s
}

// What administrators watch of the server's clients while they are at work.

// Client is the connections that a user has under one name. Those of front ends are not
// among them.
type Client struct {
	UID         uint32 `json:"uid"`
	Name        string `json:"name"` // as in its hello
	Connections int    `json:"connections"`
	Memory      int64  `json:"memory_bytes"` // outside DRAM's memory file, as budgets count it
	Leases      int    `json:"leases"`       // jobs and fills that are not ended
	LeaseBytes  uint64 `json:"lease_bytes"`
	PinBytes    uint64 `json:"pin_bytes"`
}

// held is all that they hold in DRAM.
func (c *Client) held() uint64 { return c.LeaseBytes + c.PinBytes }

// first is the first most of a list, and how many are left out.
func first[T any](list []T, most int) ([]T, int) {
	n := min(len(list), most)
	return list[:n], len(list) - n
}

// Lease is what a client holds by one request: a job, or a fill.
type Lease struct {
	ID             uint64            `json:"id"`
	Kind           string            `json:"kind"` // read of a job, write of a fill
	Connection     uint64            `json:"connection"`
	UID            uint32            `json:"uid"`
	Name           string            `json:"name"`                // of the client
	LookupID       string            `json:"lookup_id,omitempty"` // of the prompt, if it has one
	Space          string            `json:"space"`
	Model          string            `json:"model,omitempty"` // "" where it is not known
	Loading        bool              `json:"loading"`         // the prefix may still grow; of a fill: not all is committed
	Chunks         int               `json:"chunks"`          // that are held
	Bytes          uint64            `json:"bytes"`           // theirs
	ReadyTokens    uint64            `json:"ready_tokens"`
	FoundTokens    uint64            `json:"found_tokens"` // that are to be ready
	AskedTokens    uint64            `json:"asked_tokens"`
	Tiers          map[string]uint64 `json:"tier_tokens"` // ready, by where they were
	AgeSeconds     float64           `json:"age_seconds"`
	ExpiresSeconds float64           `json:"expires_seconds"`

	space key.SpaceID
}

func leaseOf(c *session, id uint64, kind string, space key.SpaceID) Lease {
	return Lease{
		ID: id, Kind: kind, Connection: c.id, UID: c.uid, Name: c.name, Space: space.String(), space: space, Tiers: make(map[string]uint64),
	}
}

func watchJob(j *job, now time.Time) Lease {
	l := leaseOf(j.session, j.id, "read", j.prompt.chain().Space)
	j.mu.Lock()
	defer j.mu.Unlock()
	l.LookupID, l.Loading, l.Chunks = j.missed.name.lookupID, !j.mu.done, len(j.mu.refs)
	l.ReadyTokens, l.FoundTokens, l.AskedTokens = j.mu.tokens, j.missed.found, j.missed.asked
	l.AgeSeconds, l.ExpiresSeconds = now.Sub(j.missed.since).Seconds(), max(0, j.mu.until.Sub(now)).Seconds()
	for p, n := range j.mu.in {
		if n.Tokens > 0 {
			l.Tiers[tier.Place(p).String()] = n.Tokens
		}
	}
	for _, r := range j.mu.refs {
		l.Bytes += uint64(r.Block.Len())
	}
	return l
}

func watchFill(f *fill, now time.Time) Lease {
	l := leaseOf(f.session, f.id, "write", f.chain.Space)
	f.mu.Lock()
	defer f.mu.Unlock()
	left := max(0, f.mu.until.Sub(now))
	l.Loading, l.Chunks = f.mu.live > 0, f.mu.live
	l.AgeSeconds, l.ExpiresSeconds = max(0, f.session.leaseAge-left).Seconds(), left.Seconds()
	for i := range f.mu.slots {
		if s := &f.mu.slots[i]; s.ref.Valid() {
			l.Bytes += uint64(s.ref.Block.Len())
		}
	}
	return l
}
