package server

import (
	"fmt"
	"time"

	"github.com/kvstored/kvstored/internal/retain"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

// Order is what an orchestrator wants of a prompt of one space and user: of the last
// one of Session, or that of Hashes, or that of Tokens.
type Order struct {
	UID     uint32
	Space   key.SpaceID
	Session string
	Hashes  []key.Hash
	Tokens  []uint32
}

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
	return c, b.Tokens(c, o.Tokens, key.Options{})
}

// RetainFor retains a prompt for a claimant, its user and name, as a client would.
// Priority 0 releases it. It returns how many chunks are retained, or were.
func (s *Server) RetainFor(o *Order, name string, c *key.Chain, priority uint8, d time.Duration) (int, error) {
	if priority == 0 {
		return s.wishes.claims.Release(retain.Claimant{UID: o.UID, Space: o.Space, Name: name}, c.Hashes), nil
	}
	return s.wishes.retain(o.UID, name, []key.Chain{*c}, 0, c.Len(), priority, d)
}

// Promote has a prompt promoted to DRAM when no client loads.
func (s *Server) Promote(c *key.Chain) { s.wishes.pauses.add([]key.Chain{*c}, time.Now()) }
