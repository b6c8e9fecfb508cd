package tiertest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

// Subject is a tier under test, empty.
type Subject struct {
	// Tier has a capacity of 16 to 64 MiB, if any, the policy lru, and
	// watermarks of 0.85 or more.
	Tier  tier.Tier
	Arena *arena.Arena   // where the payloads of Put come from
	Alloc tier.Allocator // where those of Get go
	// Reopen closes the tier if need be and opens its remains, as the
	// next process would. Nil if nothing is left.
	Reopen func() tier.Tier
}

// Run checks that what open returns fulfils the contract of tier.Tier, and
// those of tier.Resident and tier.Recoverer as far as it claims to. Each
// subtest opens its own subject, in a bubble of testing/synctest; open cleans up
// through t.
func Run(t *testing.T, open func(t *testing.T) Subject) {
	run(t, open, func(t *testing.T, test func(t *testing.T)) { synctest.Test(t, test) })
}

// RunOutside is Run without bubbles, for tiers that talk over sockets.
func RunOutside(t *testing.T, open func(t *testing.T) Subject) {
	run(t, open, func(t *testing.T, test func(t *testing.T)) { test(t) })
}

func run(t *testing.T, open func(t *testing.T) Subject, within func(*testing.T, func(*testing.T))) {
	for _, c := range []struct {
		name string
		test func(*testing.T, *suite)
	}{
		{"RoundTrip", testRoundTrip},
		{"Miss", testMiss},
		{"PutIsIdempotent", testPutIsIdempotent},
		{"Contains", testContains},
		{"Delete", testDelete},
		{"CancelledContext", testCancelledContext},
		{"AllocatorFails", testAllocatorFails},
		{"Concurrent", testConcurrent},
		{"Stats", testStats},
		{"Closed", testClosed},
		{"Has", testHas},
		{"TrimWithRoom", testTrimWithRoom},
		{"TrimOrder", testTrimOrder},
		{"TouchProtects", testTouchProtects},
		{"Recover", testRecover},
		{"BeforeRecovery", testBeforeRecovery},
	} {
		t.Run(c.name, func(t *testing.T) {
			within(t, func(t *testing.T) {
				s := &suite{Subject: open(t), t: t, stored: make(map[key.Key]bool)}
				blocks := s.Arena.Stats().Blocks
				c.test(t, s)
				s.clear()
				if now := s.Arena.Stats().Blocks; now != blocks && !t.Failed() {
					t.Errorf("%d blocks in the arena, %d before: a reference was lost", now, blocks)
				}
			})
		})
	}
}

// suite is one subject and the entries stored in it.
type suite struct {
	Subject
	t      *testing.T
	stored map[key.Key]bool
	closed bool
}

// put stores chunk i of c with n bytes and gives its own reference back.
func (s *suite) put(c *key.Chain, i, n int) {
	s.t.Helper()
	e := NewEntry(s.t, s.Arena, c, i, n)
	defer e.Block.Release()
	if err := s.Tier.Put(s.t.Context(), e); err != nil {
		s.t.Fatalf("put chunk %d of %d bytes: %v", i, n, err)
	}
	s.stored[e.Key] = true
}

// putChain stores n chunks of a new chain, each with size bytes.
func (s *suite) putChain(seed uint64, n, size int) *key.Chain {
	s.t.Helper()
	c := Chain(seed, n)
	for i := range n {
		s.put(c, i, size)
	}
	return c
}

// get checks that k is there with the n bytes that Payload makes.
func (s *suite) get(k key.Key, n int) {
	s.t.Helper()
	b, err := s.Tier.Get(s.t.Context(), k, s.Alloc)
	if err != nil {
		s.t.Fatalf("get: %v", err)
	}
	defer b.Release()
	if b.Len() != n {
		s.t.Fatalf("get returned %d bytes; %d were stored", b.Len(), n)
	}
	if err := CheckPayload(k, b.Bytes()); err != nil {
		s.t.Fatal(err)
	}
	if !b.Sealed() || !b.Verify() {
		s.t.Fatal("get returned a block that is not sealed and verified")
	}
}

// have asks for ks in one call.
func (s *suite) have(ks []key.Key) []bool {
	s.t.Helper()
	have := make([]bool, len(ks))
	if err := s.Tier.Contains(s.t.Context(), ks, have); err != nil {
		s.t.Fatalf("contains: %v", err)
	}
	return have
}

// clear deletes everything the test has stored.
func (s *suite) clear() {
	if s.closed || s.t.Failed() {
		return
	}
	var ks []key.Key
	for k := range s.stored {
		ks = append(ks, k)
	}
	if err := s.Tier.Delete(context.Background(), ks); err != nil {
		s.t.Errorf("delete all: %v", err)
	}
	for i, has := range s.have(ks) {
		if has {
			s.t.Errorf("%s is still there after its deletion", ks[i])
		}
	}
}

// wantErr fails the test unless err is want.
func wantErr(t *testing.T, op string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: got %v; want %v", op, err, want)
	}
}

// resident skips tests of what only bounded tiers have.
func (s *suite) resident() tier.Resident {
	r, ok := s.Tier.(tier.Resident)
	if !ok {
		s.t.Skip("not a tier.Resident")
	}
	return r
}

// errRoom is what failing allocators return.
var errRoom = fmt.Errorf("tiertest: no room for anybody: %w", tier.ErrNoSpace)

// noRoom is an allocator without room that counts who asks.
type noRoom struct{ asked int }

func (n *noRoom) Alloc(context.Context, int) (arena.Block, error) {
	n.asked++
	return arena.Block{}, errRoom
}
