package client

import (
	"context"

	"github.com/kvstored/kvstored/internal/wire"
)

// The calls here need RightAdmin.

// PinInfo is what one connection protects of one space under one name.
type PinInfo = wire.PinInfo

// Holder is a connection that holds something.
type Holder = wire.Holder

// Pins lists every pin, by name, and every connection that holds something.
func (c *Client) Pins(ctx context.Context) ([]PinInfo, []Holder, error) {
	var m wire.PinsReply
	err := c.link.do(ctx, wire.OpPins, &wire.EmptyRequest{}, m.Decode, nil)
	return m.Pins, m.Holders, err
}

// RevokePin frees the pins of a name and returns how many chunks they
// protected.
func (c *Client) RevokePin(ctx context.Context, lookupID string) (chunks uint64, err error) {
	return c.revoke(ctx, &wire.RevokeRequest{What: wire.RevokePin, LookupID: lookupID})
}

// RevokePins is RevokePin for every name.
func (c *Client) RevokePins(ctx context.Context) (chunks uint64, err error) {
	return c.revoke(ctx, &wire.RevokeRequest{What: wire.RevokePins})
}

// RevokeConnection frees all leases, fills and pins of a connection, which
// learns of it as if they had grown too old. It returns how many chunks those
// were.
func (c *Client) RevokeConnection(ctx context.Context, connection uint64) (chunks uint64, err error) {
	return c.revoke(ctx, &wire.RevokeRequest{What: wire.RevokeConnection, Connection: connection})
}

func (c *Client) revoke(ctx context.Context, req *wire.RevokeRequest) (uint64, error) {
	var m wire.ChunksReply
	err := c.link.do(ctx, wire.OpRevoke, req, m.Decode, nil)
	return m.Chunks, err
}

// Policies are the policies of eviction: by tier, and all there are.
type Policies struct {
	Of    map[Tiers]string
	Names []string
}

// Policies asks for them.
func (c *Client) Policies(ctx context.Context) (Policies, error) {
	return c.policy(ctx, &wire.PolicyRequest{})
}

// SetPolicy replaces the policy of a running tier; no entry is lost by that.
func (c *Client) SetPolicy(ctx context.Context, tier Tiers, name string) (Policies, error) {
	return c.policy(ctx, &wire.PolicyRequest{Tier: tier, Name: name})
}

func (c *Client) policy(ctx context.Context, req *wire.PolicyRequest) (Policies, error) {
	var m wire.PolicyReply
	if err := c.link.do(ctx, wire.OpPolicy, req, m.Decode, nil); err != nil {
		return Policies{}, err
	}
	p := Policies{Of: make(map[Tiers]string), Names: m.Names}
	for _, t := range m.Tiers {
		p.Of[t.Tier] = t.Name
	}
	return p, nil
}

// Clear forgets everything in some tiers (0 means DRAM and disk) and returns
// how many chunks that was.
func (c *Client) Clear(ctx context.Context, tiers Tiers) (chunks uint64, err error) {
	var m wire.ChunksReply
	err = c.link.do(ctx, wire.OpClear, &wire.ClearRequest{Tiers: tiers}, m.Decode, nil)
	return m.Chunks, err
}
