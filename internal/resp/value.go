package resp

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/internal/stack"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

// Value is a stored value, leased until Release.
type Value struct {
	store *Store
	owner ledger.Owner
	ref   tier.Ref
	header
}

// Bytes is the value where it lies; it is read only.
func (v *Value) Bytes() []byte { return v.value }

// Expires is when the value expires; the zero time is never.
func (v *Value) Expires() time.Time {
	if v.expires == 0 {
		return time.Time{}
	}
	return time.UnixMilli(v.expires)
}

// Release ends the lease.
func (v *Value) Release() {
	v.store.o.Stack.Release(v.owner, ledger.Lease, []tier.Ref{v.ref})
	*v = Value{}
}

// Get leases the value of name to o. If it must be promoted first, that may take
// the store's LoadTimeout. The error is ErrNotFound for everything that makes
// it a miss, ErrNoRoom among it if that is why.
func (s *Store) Get(ctx context.Context, o ledger.Owner, name []byte) (Value, error) {
	h := hashOf(name)
	if s.debts.owes(h) {
		return Value{}, fmt.Errorf("%w: %w", ErrNotFound, ErrOwed)
	}
	var p place
	p.at(h)
	ref, err := s.lease(ctx, o, &p)
	if err != nil {
		return Value{}, err
	}
	v := Value{store: s, owner: o, ref: ref}
	if !v.parse(ref.Block.Bytes()) || !v.of(name, time.Now()) {
		v.Release()
		return Value{}, ErrNotFound
	}
	s.o.Stack.Observe(&p.Chain, stack.Prompt{})
	s.o.Stack.Touch(&p.Chain, 0, 1)
	return v, nil
}

// lease leases the value at p, out of DRAM or promoted. A value that is replaced on
// its way fails to arrive and is looked for once more.
func (s *Store) lease(ctx context.Context, o ledger.Owner, p *place) (tier.Ref, error) {
	var refs [1]tier.Ref
	n, err := s.o.Stack.Hold(o, ledger.Lease, &p.Chain, 0, 1, refs[:])
	switch {
	case err != nil:
		return tier.Ref{}, fmt.Errorf("%w: %w: %w", ErrNotFound, ErrNoRoom, err)
	case n == 1:
		return refs[0], nil
	}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(s.patience.Load()))
	defer cancel()
	for range 2 {
		if m, merr := s.o.Stack.Match(ctx, &p.Chain, tier.All); merr != nil || m.Chunks == 0 {
			return tier.Ref{}, ErrNotFound
		}
		var ref tier.Ref
		if ref, _, err = s.o.Stack.Load(ctx, stack.Requester{Owner: o}, &p.Chain, 0, tier.All); err == nil {
			return ref, nil
		}
	}
	if errors.Is(err, tier.ErrNoSpace) || errors.Is(err, tier.ErrOverBudget) {
		return tier.Ref{}, fmt.Errorf("%w: %w: %w", ErrNotFound, ErrNoRoom, err)
	}
	return tier.Ref{}, fmt.Errorf("%w: %w", ErrNotFound, err)
}

// Has reports whether name has a value, without waiting for a promotion.
// The value is kept in DRAM, or promoted and kept, for a moment: the caller will
// want it next. A value that has expired counts until it is promoted.
func (s *Store) Has(ctx context.Context, name []byte) bool {
	h := hashOf(name)
	has := s.has(ctx, name, h)
	if has {
		s.keep(h)
	}
	return has
}

func (s *Store) has(ctx context.Context, name []byte, h key.Hash) bool {
	if s.debts.owes(h) {
		return false
	}
	var p place
	p.at(h)
	var refs [1]tier.Ref
	if n, _ := s.o.Stack.Hold(ledger.Daemon, ledger.IO, &p.Chain, 0, 1, refs[:]); n == 1 {
		defer s.o.Stack.Release(ledger.Daemon, ledger.IO, refs[:])
		var hd header
		return hd.parse(refs[0].Block.Bytes()) && hd.of(name, time.Now())
	}
	ctx, cancel := context.WithTimeout(ctx, changeTimeout)
	defer cancel()
	m, err := s.o.Stack.Match(ctx, &p.Chain, tier.All)
	return err == nil && m.Chunks > 0
}
