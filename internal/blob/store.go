package blob

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
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

// The errors of this package arrive wrapped with what failed.
var (
	ErrNotFound = errors.New("not found")
	ErrNoRoom   = errors.New("no room") // for now, or within the client's share
	ErrTooLarge = errors.New("too large")
	ErrNotReady = errors.New("the disk tier is still being scanned")
)

// Options of a Store.
type Options struct {
	Stack *stack.Stack
	Space string // the store's name: stores with different names share nothing
	// LoadTimeout is how long a read waits for a promotion; then it is a miss.
	// 0 = 2 s.
	LoadTimeout time.Duration
	// ShelterBytes is how much Has may protect at a time; 0 = nothing.
	ShelterBytes int64
	// OwedFile keeps, while there are any, the deletions that the tiers below
	// owe; see ErrOwed. It must outlive a kill of the process. "" = none: then an
	// old value may come back behind a kill.
	OwedFile string
	Log      zerolog.Logger
}

// Store is named values. It is safe for concurrent use.
type Store struct {
	o        Options
	patience atomic.Int64 // Options.LoadTimeout, as SetLoadTimeout has it
	space    key.SpaceID
	nonce    [8]byte       // with temps, the key of a value that is on its way in
	temps    atomic.Uint64 //
	seed     maphash.Seed
	names    [stripesOfNames]sync.Mutex // changes of one name take turns
	shelter  shelter
	known    snapshot
	debts    *debts
}

// stripesOfNames is how many locks the names share.
const stripesOfNames = 256

// roomWait is how long a value that is on its way in waits for memory that
// others hold.
const roomWait = time.Second

// SpaceOf is the id of the space that a store of that name has.
func SpaceOf(name string) key.SpaceID {
	sum := sha256.Sum256([]byte("kvstored named values\x00" + name))
	return key.SpaceID(sum[:16])
}

// SetLoadTimeout replaces that of the options, for the reads that follow.
func (s *Store) SetLoadTimeout(d time.Duration) { s.patience.Store(int64(d)) }

// New makes a store; Run protects and promotes the values that Has is asked for,
// and makes the deletions that are owed. The error is one of OwedFile.
func New(o Options) (*Store, error) {
	if o.LoadTimeout == 0 {
		o.LoadTimeout = 2 * time.Second
	}
	owed, err := openDebts(o.OwedFile)
	if err != nil {
		return nil, err
	}
	s := &Store{o: o, seed: maphash.MakeSeed(), debts: owed}
	s.SetLoadTimeout(o.LoadTimeout)
	s.space = SpaceOf(o.Space)
	o.Stack.KeepLocal(s.space) // a name's value changes, and other daemons have names of their own
	binary.LittleEndian.PutUint64(s.nonce[:], maphash.String(s.seed, o.Space))
	s.shelter.seed = s.seed
	s.shelter.wanted = make(chan key.Hash, maxWanted)
	return s, nil
}

// place is a name as the tiers know it: a chain of one chunk.
type place struct {
	chain  key.Chain
	hashes [1]key.Hash
	tokens [1]uint32
}

func (p *place) at(space key.SpaceID, h key.Hash) *key.Chain {
	p.hashes[0], p.tokens[0] = h, 1
	p.chain = key.Chain{Space: space, Hashes: p.hashes[:], Tokens: p.tokens[:]}
	return &p.chain
}

// hashOf is SHA-256 truncated to a key's 128 bits.
func hashOf(name []byte) key.Hash {
	sum := sha256.Sum256(name)
	return key.Hash(sum[:16])
}

// lock makes changes of the name with that hash take turns, until it is unlocked.
func (s *Store) lock(h key.Hash) (locked *sync.Mutex) {
	mu := &s.names[s.stripe(h)]
	mu.Lock()
	return mu
}

func (s *Store) stripe(h key.Hash) int {
	return int(maphash.Bytes(s.seed, h[:]) % stripesOfNames)
}

// Delete forgets a name and reports whether it had a value. Where a tier below
// may still have one and does not answer, the deletion is owed: the name reads as
// absent from now on all the same. The error is ErrUncertain.
func (s *Store) Delete(ctx context.Context, name []byte) (had bool, err error) {
	h := hashOf(name)
	defer s.lock(h).Unlock()
	if had = s.has(ctx, name, false); !s.debts.owes(h) {
		_, err = s.o.Stack.Delete(ctx, []key.Key{{Space: s.space, Hash: h}})
	}
	if err != nil || s.debts.owes(h) {
		err = s.owe(h, err)
	}
	if err != nil {
		return false, fmt.Errorf("delete: %w", err)
	}
	return had, nil
}

// Clear forgets every value and returns how many there were. While what an
// earlier process left is not all known it is ErrNotReady.
func (s *Store) Clear(ctx context.Context) (int, error) {
	if !s.o.Stack.Ready() {
		return 0, fmt.Errorf("clear: %w", ErrNotReady)
	}
	for i := range s.names {
		s.names[i].Lock()
		defer s.names[i].Unlock()
	}
	n, err := s.o.Stack.DeleteSpace(ctx, s.space)
	if err != nil {
		return n, fmt.Errorf("clear: %w", err)
	}
	return n, nil
}
