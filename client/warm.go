package client

import (
	"context"
	"time"

	"github.com/kvstored/kvstored/internal/wire"
)

// Warm promotes the stored prefix of a prompt to DRAM and leases none of it. It
// is idle work: it waits while a client loads. It returns when all is promoted
// or wait has passed (0: at once), with the prefix found and how far it is; the
// daemon goes on for as long as the connection lasts.
func (c *Client) Warm(ctx context.Context, p Prompt, search Tiers, wait time.Duration) (Match, State, error) {
	ch, err := c.chain(wire.OpWarm, &p)
	if err != nil {
		return Match{}, State{}, err
	}
	return c.warm(ctx, &wire.WarmRequest{Chain: ch, Search: search, Deadline: after(wait)})
}

// WarmNamed is Warm for the prompt of an earlier Prefetch, of this user, by
// its LookupID. ErrNotFound says that the daemon does not know it any more.
func (c *Client) WarmNamed(ctx context.Context, lookupID string, search Tiers, wait time.Duration) (Match, State, error) {
	return c.warm(ctx, &wire.WarmRequest{Chain: wire.Chain{Form: wire.FormNone}, LookupID: lookupID, Search: search, Deadline: after(wait)})
}

func (c *Client) warm(ctx context.Context, req *wire.WarmRequest) (Match, State, error) {
	var m wire.WarmReply
	err := c.link.do(ctx, wire.OpWarm, req, m.Decode, nil)
	return matchOf(&m.Match, m.Match.Total.Chunks), stateOf(&m.State), err
}
