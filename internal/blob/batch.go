package blob

import (
	"context"
	"slices"

	"github.com/kvstored/kvstored/internal/stack"
	"github.com/kvstored/kvstored/tier"
)

// What a client names in one request belongs together, and the first is needed first:
// of a prompt its beginning. That is a hint. It orders how values come up to DRAM and go
// from a tier; each value is stored, found and deleted by itself all the same.

// Expect has those of list, PassNames at most, that are below DRAM begin to come up, the
// first one first.
func (s *Store) Expect(ctx context.Context, list [][]byte) {
	p := s.borrow(list)
	defer p.give()
	c := s.alone(p.hashes[:len(list)])
	p.o.Stack.Where(ctx, &c, p.rest.at[:])
	for i, at := range p.rest.at[:len(list)] {
		if at != 0 && !at.Has(tier.CPU) && !s.debts.owes(p.hashes[i]) {
			s.want(p.hashes[i])
		}
	}
}

// Used counts the values of list as used together: to the policies they are one prompt,
// of which the end goes first.
func (s *Store) Used(list [][]byte) {
	parts := slices.Collect(slices.Chunk(list, PassNames))
	for _, part := range slices.Backward(parts) {
		p := s.borrow(part)
		c := s.alone(p.hashes[:len(part)])
		c.Alone = false
		s.o.Stack.Observe(&c, stack.Prompt{})
		s.o.Stack.Touch(&c, 0, len(part))
		p.give()
	}
}
