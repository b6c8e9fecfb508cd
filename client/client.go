package client

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/key"
)

// Client is a connection to a daemon. It is safe for concurrent use.
type Client struct {
	link   *link
	maps   mappings
	hello  wire.HelloReply
	space  *Space // of Dial, or nil
	chains chains

	mu struct {
		sync.Mutex
		jobs   map[uint64]*Job // live ones, for pushes
		events *eventStream    // of the call of Events under way
	}
}

// Close ends the connection: jobs, leases and fills go back to the daemon, and
// the memory it shared disappears. Calls under way return ErrClosed. The error
// is always nil.
func (c *Client) Close() error {
	c.link.fail(ErrClosed)
	c.maps.close()
	return nil
}

// Done is closed when the connection has ended: closed here, by the daemon, or
// by an error.
func (c *Client) Done() <-chan struct{} { return c.link.down }

// Space is the space given to Dial, nil if none was.
func (c *Client) Space() *Space { return c.space }

// Server is the version of the daemon, for people to read.
func (c *Client) Server() string { return c.hello.Server }

// Epoch is random for each start of the daemon: where it differs from that of
// an earlier connection, chunks that were only in DRAM then are gone.
func (c *Client) Epoch() uint64 { return c.hello.Epoch }

// Rights are what the daemon lets this process's user do.
func (c *Client) Rights() Rights { return c.hello.Rights }

// PutMode says how Reserve and Commit move payloads here.
func (c *Client) PutMode() PutMode { return c.hello.Puts }

// Mapped reports whether hits are read from shared memory.
func (c *Client) Mapped() bool { return c.hello.Granted&wire.FeatureArena != 0 }

// LeaseAge is the greatest age of a lease that is not renewed.
func (c *Client) LeaseAge() time.Duration {
	return time.Duration(c.hello.Limits.LeaseMillis) * time.Millisecond
}

// Ping asks for an empty answer.
func (c *Client) Ping(ctx context.Context) error {
	return c.link.ping(ctx)
}

// OpenSpace opens a further space on the connection, for example one per rank.
func (c *Client) OpenSpace(ctx context.Context, s key.Space) (*Space, error) {
	if err := s.Validate(); err != nil {
		return nil, refuse("open_space", ErrBadRequest, "%v", err)
	}
	var m wire.OpenSpaceReply
	if err := c.link.do(ctx, wire.OpOpenSpace, &wire.OpenSpaceRequest{Space: s}, m.Decode, nil); err != nil {
		return nil, err
	}
	return &Space{m.Space}, nil
}

// Lookup says how much of a prompt is there, in the given tiers (0 means all).
// It takes no lease: the answer may be old when it arrives.
func (c *Client) Lookup(ctx context.Context, p Prompt, search Tiers) (Match, error) {
	return c.LookupAll(ctx, p, nil, search)
}

// LookupAll is Lookup for a prompt in several spaces, those of the ranks of a
// tensor-parallel group: a chunk counts only if all have it, and where the
// farthest of them is.
func (c *Client) LookupAll(ctx context.Context, p Prompt, ranks []*Space, search Tiers) (Match, error) {
	var m wire.LookupReply
	err := c.withChain(wire.OpLookup, &p, func(ch wire.Chain) error {
		req := wire.LookupRequest{Chain: ch, Search: search, Shared: wire.Shared{Ranks: handles(ranks)}}
		return c.link.do(ctx, wire.OpLookup, &req, m.Decode, nil)
	})
	return matchOf(&m.Match, m.Worth), err
}

// LookupWhy is LookupAll, and asks why the prompt is not there to its end.
func LookupWhy(ctx context.Context, c *Client, p Prompt, ranks []*Space, search Tiers) (Match, error) {
	var m wire.LookupReply
	err := c.withChain(wire.OpLookup, &p, func(ch wire.Chain) error {
		req := wire.LookupRequest{Chain: ch, Search: search, Shared: wire.Shared{Ranks: handles(ranks), Why: true}}
		return c.link.do(ctx, wire.OpLookup, &req, m.Decode, nil)
	})
	out := matchOf(&m.Match, m.Worth)
	out.Missing = m.Missing
	return out, err
}

// LookupGroups is Client.Lookup for a hybrid model: how long a prefix all its groups can use.
// The first group is full, and in the space of the prompt. ranks are the spaces of
// further ranks: of each rank one for each group.
func LookupGroups(ctx context.Context, c *Client, p Prompt, groups []Group, ranks []*Space, search Tiers) (Match, error) {
	return LookupLengths(ctx, c, p, groups, ranks, search, 0)
}

// LookupLengths is LookupGroups, and names the usable lengths, the longest first and no more
// than most of them, which is at most 4096. Both ask why the prompt is not there to its end.
func LookupLengths(ctx context.Context, c *Client, p Prompt, groups []Group, ranks []*Space, search Tiers, most int) (Match, error) {
	ch, err := c.chain(wire.OpLookup, &p)
	if err != nil {
		return Match{}, err
	}
	req := wire.LookupRequest{Chain: ch, Search: search, Shared: wire.Shared{Ranks: handles(ranks), Groups: groupsOf(groups), Lengths: uint32(max(0, most)), Grain: p.grain(), Why: true}}
	var m wire.LookupReply
	err = c.link.do(ctx, wire.OpLookup, &req, m.Decode, nil)
	out := matchOf(&m.Match, m.Worth)
	out.Grouped, out.Missing = groupedOf(m.Grouped), m.Missing
	return out, err
}

// handles are spaces on the wire.
func handles(spaces []*Space) wire.U32s {
	if len(spaces) == 0 {
		return nil
	}
	out := make([]uint32, len(spaces))
	for i, s := range spaces {
		out[i] = s.info.Handle
	}
	return wire.ViewU32s(out)
}

// Stats returns the daemon's counters as a JSON object.
func (c *Client) Stats(ctx context.Context) (json.RawMessage, error) {
	var out json.RawMessage
	err := c.link.do(ctx, wire.OpStats, wire.EmptyRequest{}, func(body []byte) error {
		var m wire.StatsReply
		err := m.Decode(body)
		out = slices.Clone(m.JSON)
		return err
	}, nil)
	return out, err
}

// push is called by the reader. Jobs that ended here may still be pushed.
func (c *Client) push(h wire.Header, body []byte) error {
	if h.Op == wire.OpEvents {
		c.mu.Lock()
		s := c.mu.events
		c.mu.Unlock()
		if s == nil || s.id.Load() != h.ID {
			return nil
		}
		return s.update(body)
	}
	if h.Op != wire.OpPrefetch {
		return nil // from a newer daemon
	}
	c.mu.Lock()
	j := c.mu.jobs[h.ID]
	c.mu.Unlock()
	if j == nil {
		return nil
	}
	return j.update(body)
}
