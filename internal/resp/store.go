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
	"github.com/kvstored/kvstored/internal/stack"
	"github.com/kvstored/kvstored/key"
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
	Stack *stack.Stack
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
	o.Stack.KeepLocal(Space) // a name's value changes, and other daemons have names of their own
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
	if _, err := s.o.Stack.Delete(ctx, []key.Key{{Space: Space, Hash: h}}); err != nil {
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

// Add counts one.
func (d *drops) Add(err error) { d[reasonOf(err)].Add(1) }

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
