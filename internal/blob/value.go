package blob

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
	class ledger.Class
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
	v.store.o.Stack.Release(v.owner, v.class, []tier.Ref{v.ref})
	*v = Value{}
}

// Get leases the value of name to o. If it must be promoted first, that may take
// the store's LoadTimeout. The error is ErrNotFound for everything that makes
// it a miss, ErrNoRoom among it if that is why.
func (s *Store) Get(ctx context.Context, o ledger.Owner, name []byte) (Value, error) {
	h := hashOf(name)
	v, err := fetch(ctx, s, o, name, h)
	if err == nil {
		var p place
		c := p.at(s.space, h)
		s.o.Stack.Observe(c, stack.Prompt{})
		s.o.Stack.Touch(c, 0, 1)
	}
	return v, err
}

// Fetch is Get of a value that Store.Used counts later.
func (s *Store) Fetch(ctx context.Context, o ledger.Owner, name []byte) (Value, error) {
	return fetch(ctx, s, o, name, hashOf(name))
}

func fetch(ctx context.Context, s *Store, o ledger.Owner, name []byte, h key.Hash) (Value, error) {
	var p place
	c := p.at(s.space, h)
	if s.debts.owes(c.Hashes[0]) {
		return Value{}, fmt.Errorf("%w: %w", ErrNotFound, ErrOwed)
	}
	v := Value{store: s, owner: o, class: ledger.Lease}
	var refs [1]tier.Ref
	n, err := s.o.Stack.Hold(o, ledger.Lease, c, 0, 1, refs[:])
	switch {
	case err != nil:
		return Value{}, fmt.Errorf("%w: %w: %w", ErrNotFound, ErrNoRoom, err)
	case n == 1:
		v.ref = refs[0]
	default:
		if v.ref, err = s.load(ctx, o, &p); err != nil {
			return Value{}, err
		}
	}
	err = v.read(ctx, name)
	return v, err
}

// read reads the header of a value that is leased. If it is not that of name, or has
// expired, the lease is given back and the error ErrNotFound.
func (v *Value) read(ctx context.Context, name []byte) error {
	h, ok := parseHeader(v.ref.Block.Bytes())
	if v.header = h; ok && h.of(name, time.Now()) {
		return nil
	}
	s := v.store
	v.Release()
	if ok && h.expired(time.Now()) {
		s.forgetExpired(ctx, hashOf(name))
	}
	return ErrNotFound
}

// load promotes a value. One that is replaced on its way fails to arrive and is
// looked for once more.
func (s *Store) load(ctx context.Context, o ledger.Owner, p *place) (tier.Ref, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(s.patience.Load()))
	defer cancel()
	var err error
	for range 2 {
		m, merr := s.o.Stack.Match(ctx, &p.chain, tier.All)
		if merr != nil || m.Chunks == 0 {
			return tier.Ref{}, ErrNotFound
		}
		var ref tier.Ref
		if ref, _, err = s.o.Stack.Load(ctx, o, &p.chain, 0, tier.All); err == nil {
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
func (s *Store) Has(ctx context.Context, name []byte) bool { return s.has(ctx, name, true) }

func (s *Store) has(ctx context.Context, name []byte, keep bool) bool {
	var p place
	c := p.at(s.space, hashOf(name))
	if s.debts.owes(c.Hashes[0]) {
		return false
	}
	var refs [1]tier.Ref
	if n, _ := s.o.Stack.Hold(ledger.Daemon, ledger.IO, c, 0, 1, refs[:]); n == 1 {
		h, ok := parseHeader(refs[0].Block.Bytes())
		ok = ok && h.of(name, time.Now())
		id := refs[0].ID
		s.o.Stack.Release(ledger.Daemon, ledger.IO, refs[:])
		switch {
		case ok && keep:
			if !s.shelter.shelters(name, id) {
				s.keep(c)
			}
		case keep && h.expired(time.Now()):
			s.forgetExpired(ctx, c.Hashes[0])
		}
		return ok
	}
	m, err := s.o.Stack.Match(ctx, c, tier.All)
	if err != nil || m.Chunks == 0 {
		return false
	}
	if keep {
		s.want(c.Hashes[0])
	}
	return true
}

// forgetExpired deletes a value if it has expired; it may be another by now.
func (s *Store) forgetExpired(ctx context.Context, h key.Hash) {
	defer s.lock(h).Unlock()
	var p place
	var refs [1]tier.Ref
	if n, _ := s.o.Stack.Hold(ledger.Daemon, ledger.IO, p.at(s.space, h), 0, 1, refs[:]); n == 0 {
		return
	}
	hd, ok := parseHeader(refs[0].Block.Bytes())
	old := ok && hd.expired(time.Now())
	s.o.Stack.Release(ledger.Daemon, ledger.IO, refs[:])
	if old { // if it stays, it stays expired
		_, _ = s.o.Stack.Delete(ctx, []key.Key{{Space: s.space, Hash: h}})
	}
}
