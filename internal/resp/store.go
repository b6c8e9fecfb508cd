package resp

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/base"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/internal/store"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

// MaxName is the longest name in bytes.
const MaxName = 16 << 10

// MaxValue is the longest value with a name of so many bytes: name and value
// share the largest payload there may be.
func MaxValue(name int) int { return arena.MaxPayload - headerBytes(name) }

// Space is where all values lie.
var Space = func() key.SpaceID {
	sum := sha256.Sum256([]byte("kvstored named values\x00resp"))
	return key.SpaceID(sum[:16])
}()

// The errors of this package arrive wrapped with what failed.
var (
	ErrNotFound = errors.New("not found")
	ErrNoRoom   = errors.New("no room") // for now, or within the client's share
	ErrTooLarge = errors.New("too large")
)

// StoreOptions of a Store.
type StoreOptions struct {
	Tiers *store.Store
	// LoadTimeout is how long a read waits for a promotion; then it is a miss.
	LoadTimeout time.Duration
	// ShelterBytes is how much Has may protect at a time; 0 = nothing.
	ShelterBytes int64
	// MaxOwed is how many deletions the tiers below may owe; 0 = 262,144.
	MaxOwed int
	Log     zerolog.Logger
}

// Store is named values. It is safe for concurrent use.
type Store struct {
	o        StoreOptions
	patience atomic.Int64  // Options.LoadTimeout, as SetLoadTimeout has it
	nonce    uint64        // with temps, the key of a value that is on its way in
	temps    atomic.Uint64 //
	names    [256]sync.Mutex
	shelter  shelter
	debts    debts
}

const (
	// roomWait is how long a value that is on its way in waits for memory that
	// others hold.
	roomWait = time.Second
	// changeTimeout bounds what a change of a name waits for the tiers below, also
	// where a device hangs.
	changeTimeout = 10 * time.Second
)

// NewStore makes a store; Run protects and promotes the values that Has is asked for,
// and makes the deletions that are owed.
func NewStore(o StoreOptions) *Store {
	o.MaxOwed = cmp.Or(o.MaxOwed, maxOwed)
	s := &Store{o: o, nonce: rand.Uint64()}
	s.SetLoadTimeout(o.LoadTimeout)
	s.debts.wake = make(chan struct{}, 1)
	s.shelter.wanted = make(chan key.Hash, maxWanted)
	o.Tiers.Writers.KeepLocal(Space) // a name's value changes, and other daemons have names of their own
	return s
}

// SetLoadTimeout replaces that of the options, for the reads that follow.
func (s *Store) SetLoadTimeout(d time.Duration) { s.patience.Store(int64(d)) }

// Run does what a Store does in the background, until ctx ends.
func (s *Store) Run(ctx context.Context) error {
	var workers sync.WaitGroup
	workers.Go(func() { s.keepPaying(ctx) })
	workers.Go(func() { s.keepSheltered(ctx) })
	for range promoters {
		workers.Go(func() { s.keepPromoting(ctx) })
	}
	workers.Wait()
	return nil
}

// place is a name as the tiers know it: a chain of one chunk.
type place struct {
	key.Chain
	hashes [1]key.Hash
	tokens [1]uint32
}

// at sets the place. The chain lies in it: p must not be copied afterwards.
func (p *place) at(h key.Hash) {
	p.hashes[0], p.tokens[0] = h, 1
	p.Chain = key.Chain{Space: Space, Hashes: p.hashes[:], Tokens: p.tokens[:]}
}

// hashOf is SHA-256 truncated to a key's 128 bits.
func hashOf(name []byte) key.Hash {
	sum := sha256.Sum256(name)
	return key.Hash(sum[:16])
}

// lock makes changes of the name with that hash take turns, until it is unlocked.
func (s *Store) lock(h key.Hash) *sync.Mutex {
	mu := &s.names[h[0]]
	mu.Lock()
	return mu
}

// Delete forgets a name and reports whether it had a value. Where a tier below
// may still have one and does not answer, the deletion is owed: the name reads as
// absent from now on all the same. The error is ErrUncertain.
func (s *Store) Delete(ctx context.Context, name []byte) (had bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, changeTimeout)
	defer cancel()
	h := hashOf(name)
	defer s.lock(h).Unlock()
	if s.debts.owes(h) {
		return false, nil
	}
	had = s.has(ctx, name, h)
	if _, err := s.o.Tiers.Remover.Delete(ctx, []key.Key{{Space: Space, Hash: h}}); err != nil {
		if err = s.owe(h, err); err != nil {
			return false, fmt.Errorf("delete: %w", err)
		}
	}
	return had, nil
}

// dropReason says why a front end took a value and did not keep it.
type dropReason uint8

// The reasons.
const (
	dropNoRoom   dropReason = iota // none for now, or within the client's share
	dropTooLarge                   // for any daemon, or for this one
	dropOwed                       // an older value is still to be deleted below
	dropTiers                      // the tiers below did not answer
	dropReasons
)

func (r dropReason) String() string {
	return [...]string{"no_room", "too_large", "owed", "tiers"}[r]
}

// reasonOf tells the reason by the error of Begin or Store.
func reasonOf(err error) dropReason {
	switch {
	case errors.Is(err, ErrTooLarge):
		return dropTooLarge
	case errors.Is(err, ErrNoRoom):
		return dropNoRoom
	case errors.Is(err, ErrOwed):
		return dropOwed
	}
	return dropTiers
}

// drops counts values by the reason they were dropped for. The zero drops is
// ready; it is safe for concurrent use.
type drops [dropReasons]atomic.Uint64

// Counts is how many there were of each reason, all of them named.
func (d *drops) Counts() map[string]uint64 {
	counts := make(map[string]uint64, dropReasons)
	for r := range dropReasons {
		counts[r.String()] = d[r].Load()
	}
	return counts
}

// The header in front of every value, little-endian:
//
//	0  u32  magic, "KVB1"
//	4  u32  length of the name
//	8  i64  when the value expires, ms since 1970; 0 = never
//	16      the name, zeros up to a multiple of 8
const (
	magic       = uint32('K') | 'V'<<8 | 'B'<<16 | '1'<<24
	fixedHeader = 16
)

// headerBytes is how long the header of a value with such a name is.
func headerBytes(name int) int { return (fixedHeader + name + 7) &^ 7 }

// putHeader writes the header of name over the start of b, which has room.
func putHeader(b, name []byte, expires int64) {
	binary.LittleEndian.PutUint32(b, magic)
	binary.LittleEndian.PutUint32(b[4:], uint32(len(name)))
	setExpiry(b, expires)
	n := copy(b[fixedHeader:], name)
	clear(b[fixedHeader+n : headerBytes(len(name))])
}

func setExpiry(b []byte, expires int64) { binary.LittleEndian.PutUint64(b[8:], uint64(expires)) }

// header is what the header of a value says; name is part of the block.
type header struct {
	name    []byte
	expires int64
	value   []byte
}

// parse reads a block; false means that this is no value of ours.
func (h *header) parse(b []byte) bool {
	if len(b) < fixedHeader || binary.LittleEndian.Uint32(b) != magic {
		return false
	}
	n := binary.LittleEndian.Uint32(b[4:])
	if n > MaxName || headerBytes(int(n)) > len(b) {
		return false
	}
	h.name, h.value = b[fixedHeader:fixedHeader+n], b[headerBytes(int(n)):]
	h.expires = int64(binary.LittleEndian.Uint64(b[8:]))
	return true
}

// of reports whether the value is that of name and has not expired.
func (h *header) of(name []byte, now time.Time) bool {
	return bytes.Equal(h.name, name) && (h.expires == 0 || h.expires > now.UnixMilli())
}

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
	ref, err := s.o.Tiers.Filler.Open(ctx, o, k, size, tier.AtOnce)
	if errors.Is(err, tier.ErrNoSpace) {
		wait, cancel := context.WithTimeout(ctx, roomWait)
		defer cancel()
		ref, err = s.o.Tiers.Filler.Open(wait, o, k, size, tier.Wait)
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
	if err := s.o.Tiers.Filler.Replace(ctx, &p.Chain, f.ref); err != nil {
		return false, fmt.Errorf("store: %w", errors.Join(err, s.owe(h, err)))
	}
	return true, nil
}

// Abort gives up the bytes that have arrived.
func (f *Fill) Abort() { f.store.o.Tiers.Filler.Abort([]tier.Ref{f.ref}) }

const (
	shelterFor = 2 * time.Second // at least, from being asked for to being read; twice that at most
	maxWanted  = 4096            // values that wait to be promoted
	promoters  = 4               // that do so at a time
)

// shelter holds a lease of the daemon's for each value that Has has found in this
// turn of shelterFor, and in the one before. Its mutex is a leaf.
type shelter struct {
	wanted chan key.Hash // to be promoted and sheltered
	mu     struct {
		sync.Mutex
		young, old []tier.Ref
		bytes      int64 // of young
		closed     bool
	}
}

// keep shelters the value of the name with that hash, after a promotion if it takes
// one. Where there is no room, or too much to promote, that costs speed and no more.
func (s *Store) keep(h key.Hash) {
	var p place
	p.at(h)
	var refs [1]tier.Ref
	n, err := s.o.Tiers.Leases.Hold(ledger.Daemon, ledger.Lease, &p.Chain, 0, 1, refs[:])
	switch {
	case n == 1:
		s.take(refs[0])
	case err == nil:
		select {
		case s.shelter.wanted <- h:
		default:
		}
	}
}

func (s *Store) keepPromoting(ctx context.Context) {
	for {
		select {
		case h := <-s.shelter.wanted:
			var p place
			p.at(h)
			if ref, err := s.lease(ctx, ledger.Daemon, &p); err == nil {
				s.take(ref)
			}
		case <-ctx.Done():
			return
		}
	}
}

// take owns a lease of the daemon's from now on. Those of the last turn make room.
func (s *Store) take(ref tier.Ref) { s.letGo(s.shelter.push(ref, s.o.ShelterBytes/2)) }

func (s *Store) letGo(refs []tier.Ref) { s.o.Tiers.Leases.Release(ledger.Daemon, ledger.Lease, refs) }

// push takes a value in, and returns the leases to let go for it: its own where the value is
// larger than most, which a turn may have.
func (sh *shelter) push(ref tier.Ref, most int64) (out []tier.Ref) {
	n := int64(len(ref.Block.Padded()))
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if sh.mu.closed || n > most {
		return []tier.Ref{ref}
	}
	if sh.mu.bytes+n > most {
		out = sh.turn()
	}
	sh.mu.young = append(sh.mu.young, ref)
	sh.mu.bytes += n
	return out
}

// turn ends a turn, and returns the leases of the one before. It is called with the mutex
// held.
func (sh *shelter) turn() (out []tier.Ref) {
	out, sh.mu.old, sh.mu.young, sh.mu.bytes = sh.mu.old, sh.mu.young, nil, 0
	return out
}

// keepSheltered ends one turn after the other, and lets go of all when ctx ends.
func (s *Store) keepSheltered(ctx context.Context) {
	for base.Sleep(ctx, shelterFor) == nil {
		s.letGo(s.shelter.over(false))
	}
	s.letGo(s.shelter.over(true))
}

// over ends a turn; the last one ends both, and push takes nothing any more.
func (sh *shelter) over(last bool) (out []tier.Ref) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if out = sh.turn(); last {
		sh.mu.closed = true
		out = append(out, sh.turn()...)
	}
	return out
}
