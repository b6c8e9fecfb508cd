package blob

import (
	"bytes"
	"encoding/binary"
	"slices"
	"sync"
	"time"

	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

// snapshot is the hashes of all values in order, for scans that are under way.
type snapshot struct {
	mu struct {
		sync.Mutex
		hashes []key.Hash
		taken  time.Time
	}
}

// snapshotFor is how long scans that go on share one snapshot.
const snapshotFor = 10 * time.Second

// Count is how many names are known, those included whose value has expired
// and was not looked at since.
func (s *Store) Count() (n int) {
	for _, k := range s.o.Stack.Known(s.space) {
		if !s.debts.owes(k.Hash) {
			n++
		}
	}
	return n
}

// Scan calls fn with about n names behind cursor and returns the next cursor,
// 0 at the end; start with 0. A name that is there all the time is met once.
// Names of values that are not in DRAM are passed over: only the value itself
// tells its name.
//
// Names come in the order of their hashes, and a cursor is the first 64 bits
// of the last one, so that it is good at any time and on any connection.
func (s *Store) Scan(cursor uint64, n int, fn func(name []byte)) (next uint64) {
	hashes := s.sorted(cursor == 0)
	at := 0
	if cursor > 0 {
		var from key.Hash
		binary.BigEndian.PutUint64(from[:], cursor)
		at, _ = slices.BinarySearchFunc(hashes, from, compare)
		for at < len(hashes) && head(hashes[at]) == cursor {
			at++
		}
	}
	for ; at < len(hashes); at++ {
		// What shares its first 64 bits with the last goes with it.
		if n <= 0 && head(hashes[at]) != next && next != 0 {
			return next
		}
		n--
		next = head(hashes[at])
		s.name(hashes[at], fn)
	}
	s.forgetSnapshot()
	return 0
}

func head(h key.Hash) uint64 { return binary.BigEndian.Uint64(h[:]) }

func compare(a, b key.Hash) int { return bytes.Compare(a[:], b[:]) }

// sorted is the hashes of all values, not much older than now.
func (s *Store) sorted(fresh bool) []key.Hash {
	s.known.mu.Lock()
	defer s.known.mu.Unlock()
	if !fresh && s.known.mu.hashes != nil && time.Since(s.known.mu.taken) < snapshotFor {
		return s.known.mu.hashes
	}
	ks := s.o.Stack.Known(s.space)
	hashes := make([]key.Hash, len(ks))
	for i, k := range ks {
		hashes[i] = k.Hash
	}
	slices.SortFunc(hashes, compare)
	s.known.mu.hashes, s.known.mu.taken = hashes, time.Now()
	return hashes
}

func (s *Store) forgetSnapshot() {
	s.known.mu.Lock()
	defer s.known.mu.Unlock()
	s.known.mu.hashes = nil
}

// name calls fn with the name of a value in DRAM that has not expired.
func (s *Store) name(h key.Hash, fn func([]byte)) {
	if s.debts.owes(h) {
		return
	}
	var p place
	var refs [1]tier.Ref
	c := p.at(s.space, h)
	if n, _ := s.o.Stack.Hold(ledger.Daemon, ledger.IO, c, 0, 1, refs[:]); n == 0 {
		return
	}
	defer s.o.Stack.Release(ledger.Daemon, ledger.IO, refs[:])
	if hd, ok := parseHeader(refs[0].Block.Bytes()); ok && !hd.expired(time.Now()) {
		fn(hd.name)
	}
}
