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
	link  *link
	maps  mappings
	hello wire.HelloReply
	space *Space // of Dial, or nil

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

// Distrust has everything that is stored in a space be a miss, for all clients, until an
// administrator says `kvstored forget --distrust`. It takes RightWrite there.
func (c *Client) Distrust(ctx context.Context, s key.Space) error {
	return c.link.do(ctx, wire.OpOpenSpace, &wire.OpenSpaceRequest{Space: s, Distrust: true}, new(wire.OpenSpaceReply).Decode, nil)
}

// Lookup says how much of a prompt is there, in the given tiers (0 means all).
// It takes no lease: the answer may be old when it arrives.
func (c *Client) Lookup(ctx context.Context, p Prompt, search Tiers) (Match, error) {
	return c.LookupWith(ctx, p, LookupOptions{Search: search})
}

// LookupOptions say what a lookup is about besides a prompt in its space.
type LookupOptions struct {
	Search Tiers // 0 means all
	// Ranks are the spaces of the other ranks of a tensor-parallel group: a chunk counts
	// only if all have it, and where the farthest of them is.
	Ranks []*Space
	// Groups are those of a hybrid model: how long a prefix all of them can use. The first
	// is full, and in the space of the prompt. Of each further rank Ranks has the spaces of
	// all groups.
	Groups  []Group
	Lengths int  // usable lengths of a hybrid model to name, the longest first, at most 4096
	Why     bool // why part of the prompt is missing; see Match.Missing
}

// LookupWith is Lookup with options.
func (c *Client) LookupWith(ctx context.Context, p Prompt, o LookupOptions) (out Match, err error) {
	shared := wire.Shared{Ranks: handles(o.Ranks), Groups: groupsOf(o.Groups), Lengths: uint32(max(0, o.Lengths)), Grain: p.grain(), Why: o.Why}
	ch, err := c.chain(wire.OpLookup, &p)
	if err != nil {
		return out, err
	}
	var m wire.LookupReply
	err = c.link.do(ctx, wire.OpLookup, &wire.LookupRequest{Chain: ch, Search: o.Search, Shared: shared}, m.Decode, nil)
	out = matchOf(&m.Match, m.Worth)
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
