package admin

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/kvstored/kvstored/internal/explain"
	"github.com/kvstored/kvstored/tier"
)

const (
	summaryShare = 20               // a summary serves for so many times what it took to be made
	smallSummary = 1000             // prefixes; a smaller one is made anew each time
	summaryAge   = 20 * time.Second // and is dropped then
	mostPage     = 1000             // prefixes in a page
	defaultPage  = 100
	mostTree     = 4000 // prefixes in a tree
)

// PrefixesRequest asks for a page of the prefixes that are stored. As all values of a query,
// numbers are texts.
type PrefixesRequest struct {
	Space string `json:"space,omitempty"` // its id; "" = every space
	Under string `json:"under,omitempty"` // a prefix, by the first digits of its hash: what goes on behind it
	By    string `json:"by,omitempty"`    // bytes (""), heat, age, depth, or tree: the largest, of any depth
	All   string `json:"all,omitempty"`   // true: also what stands on others
	Limit string `json:"limit,omitempty"` // prefixes in a page, or a tree: 100
	After string `json:"after,omitempty"` // Next of the page before
}

// Prefixes is a part of the stored prefixes. A tree has parents before children.
type Prefixes struct {
	Prefixes []Prefix  `json:"prefixes"`
	Next     string    `json:"next"`      // where to go on; "" = there are no more
	LeftOut  int       `json:"left_out"`  // stretches of chunks that were not looked at
	LookedAt time.Time `json:"looked_at"` // what is stored changes meanwhile
}

// Prefix is the chunks from behind one branch of prompts to the next. All but its own
// numbers include the prefixes that go on behind it.
type Prefix struct {
	Space        string   `json:"space"`
	Model        string   `json:"model,omitempty"`
	Hash         string   `json:"hash"`  // of its first chunk
	Above        string   `json:"above"` // hash of the prefix that it goes on; "": it begins prompts
	Detached     bool     `json:"detached,omitempty"`
	Depth        int      `json:"depth_chunks"` // before it
	Own          int      `json:"own_chunks"`
	ChunkTokens  int      `json:"chunk_tokens,omitempty"`
	Branches     int      `json:"branches"` // prefixes that go on behind it
	Chunks       int      `json:"chunks"`
	Bytes        int64    `json:"bytes"` // each chunk once, by the mean of its space
	DRAMBytes    int64    `json:"dram_bytes"`
	DiskBytes    int64    `json:"disk_bytes"`
	RemoteChunks int      `json:"remote_chunks"`
	Heat         float64  `json:"heat"`         // requests, each counting half after ten minutes
	IdleSeconds  *float64 `json:"idle_seconds"` // since it was asked for or stored; null: not remembered
}

// summaries is the last summary, so that pages and viewers share one.
type summaries struct {
	turn chan struct{} // capacity 1: held while one is made or looked at
	last *explain.Summary
	good time.Time // until then
}

// summary returns a young summary of the store.
func (a *API) summary(ctx context.Context) (*explain.Summary, error) {
	select {
	case a.summaries.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-a.summaries.turn }()
	if t := a.summaries.last; t != nil && time.Now().Before(a.summaries.good) {
		return t, nil
	}
	t, err := a.o.Store.Operator.Summary(ctx)
	if err == nil {
		a.summaries.last, a.summaries.good = t, time.Now()
		if len(t.Nodes) > smallSummary {
			a.summaries.good = a.summaries.good.Add(summaryShare * time.Since(t.At))
		}
		time.AfterFunc(summaryAge, func() { a.summaries.forget(t) })
	}
	return t, err
}

// forget drops a summary, unless a newer one has its place.
func (o *summaries) forget(t *explain.Summary) {
	o.turn <- struct{}{}
	if o.last == t {
		o.last = nil
	}
	<-o.turn
}

// byTree lists the largest prefixes, parents before children.
const byTree = "tree"

// read is the order of a request, and its page.
func (q *PrefixesRequest) read() (by explain.Order, limit, after int, err error) {
	by, limit = explain.Order(cmp.Or(q.By, string(explain.ByBytes))), defaultPage
	most := mostPage
	if by == byTree {
		most = mostTree
	}
	switch {
	case by != byTree && !slices.Contains(explain.Orders(), by):
		err = refuse(BadRequest, "by: %.80q is no order; give one of %v, or tree", q.By, explain.Orders())
	case q.All != "" && q.All != "true" && q.All != "false":
		err = refuse(BadRequest, "all: %.80q is neither true nor false", q.All)
	default:
		err = errors.Join(number("limit", q.Limit, 1, most, &limit), number("after", q.After, 0, explain.MostRuns, &after))
	}
	return by, limit, after, err
}

func (c *call) prefixes(q *PrefixesRequest) (*Prefixes, error) {
	by, limit, after, err := q.read()
	if err != nil {
		return nil, err
	}
	t, under, err := c.at(q.Space, q.Under)
	if err != nil {
		return nil, err
	}
	in := func(i int) bool {
		return q.Space == "" || hex.EncodeToString(t.Spaces[t.Nodes[i].Space].ID[:]) == q.Space
	}
	reply := Prefixes{Prefixes: []Prefix{}, LeftOut: t.LeftOut, LookedAt: t.At}
	var list []int
	if by == byTree {
		list = t.Largest(limit, func(i int) bool { return t.Within(i, under) && in(i) })
	} else {
		list = t.List(by, func(i int) bool { return (q.All == "true" && under < 0 || t.Nodes[i].Parent == under) && in(i) })
		list = list[min(after, len(list)):]
	}
	if len(list) > limit {
		list, reply.Next = list[:limit], strconv.Itoa(after+limit)
	}
	for _, i := range list {
		reply.Prefixes = append(reply.Prefixes, c.prefix(t, &t.Nodes[i]))
	}
	return &reply, nil
}

// at is a summary and the position in it that a request names; -1 is the beginning.
func (c *call) at(space, under string) (*explain.Summary, int, error) {
	if space != "" {
		if _, err := spaceID("space", space); err != nil {
			return nil, 0, err
		}
	}
	t, err := c.summary(c.ctx)
	if err != nil || under == "" {
		return t, -1, err
	}
	at, err := t.Find(space, under)
	switch {
	case errors.Is(err, explain.ErrUnknown):
		return nil, 0, refuse(NotFound, "under: %v", err).advise("`kvstored list prefixes` lists the prefixes; a prefix takes another name where a prompt branches off within it")
	case err != nil:
		return nil, 0, refuse(BadRequest, "under: %v", err)
	}
	return t, at, nil
}

func (c *call) prefix(t *explain.Summary, n *explain.Node) Prefix {
	s := &t.Spaces[n.Space]
	of, _ := c.o.Server.Describe(s.ID)
	p := Prefix{
		Space: hex.EncodeToString(s.ID[:]), Model: of.Model, Hash: hex.EncodeToString(n.Hash[:]), Detached: n.Detached,
		Depth: n.Depth, Own: n.Length, ChunkTokens: of.ChunkTokens, Branches: n.Branches, Chunks: n.All.Chunks, Bytes: t.Size(n),
		DRAMBytes: t.Bytes(n.Space, int(tier.CPU), n.All.In[tier.CPU]), DiskBytes: t.Bytes(n.Space, int(tier.Disk), n.All.In[tier.Disk]),
		RemoteChunks: n.All.In[tier.Remote], Heat: n.All.Heat,
	}
	if n.Parent >= 0 {
		p.Above = hex.EncodeToString(t.Nodes[n.Parent].Hash[:])
	}
	if !n.All.Last.IsZero() {
		idle := t.At.Sub(n.All.Last).Seconds()
		p.IdleSeconds = &idle
	}
	return p
}

// number reads a number of a query, if there is one.
func number(field, text string, least, most int, n *int) error {
	if text == "" {
		return nil
	}
	v, err := strconv.Atoi(text)
	if err != nil || v < least || v > most {
		return refuse(BadRequest, "%s: %.80q is no whole number from %d to %d", field, text, least, most)
	}
	*n = v
	return nil
}
