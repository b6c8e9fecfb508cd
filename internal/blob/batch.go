package blob

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/internal/stack"
	"github.com/kvstored/kvstored/tier"
)

// What a client names in one request belongs together, and the first is needed first:
// of a prompt its beginning. That is a hint. It orders how values come up to DRAM and go
// from a tier; each value is stored, found and deleted by itself all the same.

// Leased is the values of some names of one request, as far as one pass over the store
// found them in DRAM. It is for one goroutine; end it with Close.
type Leased struct {
	names *names
	owner ledger.Owner
}

// Lease leases the values of list, PassNames at most, to o: in one pass those that are
// in DRAM and within its budget. The others that are stored begin to come up, the first
// one first.
func (s *Store) Lease(ctx context.Context, o ledger.Owner, list [][]byte) Leased {
	p := s.borrow(list)
	p.ask()
	p.absent.n = 0
	hashes := p.hashes[:len(list)]
	c := s.alone(hashes)
	s.o.Stack.HoldEach(o, ledger.Lease, &c, p.rest.refs[:len(list)])
	for i, h := range hashes {
		if p.is[i], p.none[i] = false, false; !p.rest.refs[i].Valid() && !p.owed[i] {
			p.absent.add(i, h)
		}
	}
	if p.absent.n > 0 {
		p.expect(ctx)
	}
	return Leased{p, o}
}

// expect has those of the absent that are below DRAM begin to come up, and notes
// those that are somewhere, and those that are not for certain.
func (p *names) expect(ctx context.Context) {
	part := &p.absent
	c := p.alone(part.hashes[:part.n])
	sure := p.o.Stack.Where(ctx, &c, part.at[:])
	for j, i := range part.which[:part.n] {
		at := part.at[j]
		p.none[i] = at == 0 && sure
		if p.is[i] = at != 0; at != 0 && !at.Has(tier.CPU) {
			p.want(part.hashes[j])
		}
	}
}

// Take is Fetch of name i of the list, once; a name that had no value when the pass
// looked for it has none. Where a value cannot come up that some tier has, those behind
// it give their leases back, whose room it may need.
func (l *Leased) Take(ctx context.Context, i int) (Value, error) {
	p := l.names
	if ref := p.rest.refs[i]; ref.Valid() {
		p.rest.refs[i] = tier.Ref{}
		v := Value{store: p.Store, owner: l.owner, class: ledger.Lease, ref: ref}
		if p.owed[i] {
			v.Release()
			return Value{}, fmt.Errorf("%w: %w", ErrNotFound, ErrOwed)
		}
		err := v.read(ctx, p.list[i])
		return v, err
	}
	if p.none[i] {
		return Value{}, ErrNotFound
	}
	v, err := p.Fetch(ctx, l.owner, p.list[i])
	if err != nil && (p.is[i] || errors.Is(err, ErrNoRoom)) && l.giveBack() {
		v, err = p.Fetch(ctx, l.owner, p.list[i])
	}
	return v, err
}

// giveBack ends the leases that were not taken, and reports whether there were any.
func (l *Leased) giveBack() bool {
	p := l.names
	refs := valid(p.rest.refs[:len(p.list)]) // the others are zero afterwards
	p.o.Stack.Release(l.owner, ledger.Lease, refs)
	return len(refs) > 0
}

// Close ends the leases that were not taken.
func (l *Leased) Close() {
	l.giveBack()
	l.names.give()
	l.names = nil
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
