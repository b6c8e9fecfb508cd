package resp

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

// Fill is a value on its way in. It ends with Store or Abort.
type Fill struct {
	store *Store
	name  []byte // in the block
	ref   tier.Ref
	sum   arena.RunningSum // of the block, as far as Arrived was called
	fresh int              // bytes behind those that are not hashed yet
	left  int              // bytes that Arrived was not called for
}

// hotBytes stay in the caches until they are hashed. What a client sends at a time is
// often less.
const hotBytes = 128 << 10

// Begin reserves room for a value of n bytes, charged to o. It does not touch
// the value that is stored under the name. Any number of fills of one name may be under
// way; the last to be stored wins. The error is ErrNoRoom or ErrTooLarge.
func (s *Store) Begin(ctx context.Context, o ledger.Owner, name []byte, n int) (*Fill, error) {
	if len(name) > MaxName || n > MaxValue(len(name)) {
		return nil, fmt.Errorf("%w: a name may have %d bytes and its value %d", ErrTooLarge, MaxName, MaxValue(min(len(name), MaxName)))
	}
	var h key.Hash
	binary.BigEndian.PutUint64(h[:], s.nonce)
	binary.BigEndian.PutUint64(h[8:], s.temps.Add(1))
	k := key.Key{Space: Space, Hash: h}
	size := headerBytes(len(name)) + n
	ref, err := s.o.Stack.Open(ctx, o, k, size, false)
	if errors.Is(err, tier.ErrNoSpace) {
		wait, cancel := context.WithTimeout(ctx, roomWait)
		defer cancel()
		ref, err = s.o.Stack.Open(wait, o, k, size, true)
	}
	switch {
	case errors.Is(err, tier.ErrTooLarge):
		return nil, fmt.Errorf("%w: %w", ErrTooLarge, err)
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrNoRoom, err)
	}
	b := ref.Block.Bytes()
	putHeader(b, name, 0)
	f := &Fill{store: s, name: b[fixedHeader : fixedHeader+len(name)], ref: ref, sum: arena.SumOver(b), left: n}
	f.sum.Arrived(size - n)
	return f, nil
}

// Value is where the value goes: all of it must have been written before Store.
func (f *Fill) Value() []byte { return f.ref.Block.Bytes()[headerBytes(len(f.name)):] }

// Arrived says that the next n bytes of the value are written and do not change
// any more, so that they are hashed while they are hot, the last ones by Store. A caller need
// not say it.
func (f *Fill) Arrived(n int) {
	f.left -= n
	if f.fresh += n; f.fresh >= hotBytes {
		f.hash()
	}
}

func (f *Fill) hash() {
	f.sum.Arrived(f.fresh)
	f.fresh = 0
}

// seal makes the block immutable. An expiry comes after the value but lies in
// front of it, so that the block has to be hashed again.
func (f *Fill) seal(expires time.Time) {
	switch {
	case !expires.IsZero():
		setExpiry(f.ref.Block.Bytes(), expires.UnixMilli())
		f.ref.Block.Seal()
	case f.left > 0:
		f.ref.Block.Seal()
	default:
		f.hash()
		f.ref.Block.SealSum(f.sum.Sum())
	}
}

// When says which names a value is stored under.
type When uint8

// The conditions.
const (
	Always  When = iota
	Absent       // only a name that has no value yet
	Present      // only one that has
)

// Store makes the value visible in place of what the name had, unless `when`
// forbids it: then stored is false, and nothing has changed. It expires then;
// the zero time is never. The fill has ended also after an error. Then the name
// has no value, neither this one nor an older one, unless it is ErrUncertain.
func (f *Fill) Store(ctx context.Context, when When, expires time.Time) (stored bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, changeTimeout)
	defer cancel()
	f.seal(expires)
	s, h := f.store, hashOf(f.name)
	defer s.lock(h).Unlock()
	if when != Always && s.has(ctx, f.name, h) != (when == Present) {
		f.Abort()
		return false, nil
	}
	if s.debts.owes(h) {
		f.Abort()
		return false, fmt.Errorf("store: %w", ErrOwed)
	}
	var p place
	p.at(h)
	if err := s.o.Stack.Replace(ctx, &p.Chain, f.ref); err != nil {
		return false, fmt.Errorf("store: %w", errors.Join(err, s.owe(h, err)))
	}
	return true, nil
}

// Abort gives up the bytes that have arrived.
func (f *Fill) Abort() { f.store.o.Stack.Abort([]tier.Ref{f.ref}) }
