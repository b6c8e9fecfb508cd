package store_test

import (
	"errors"
	"flag"
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/internal/store"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
	"github.com/kvstored/kvstored/tier/tiertest"
)

var (
	claimOps  = flag.Int("claims.ops", 4000, "operations of TestClaims")
	claimSeed = flag.Uint64("claims.seed", 1, "where its random numbers begin")
)

const (
	claimSize = 4 * kib
	claimKeys = 600 // more than DRAM holds
)

// liars store and read chains of few keys in any order: a key has many parents, and
// cycles are common. Honest chains of other keys are among them. The disk has room
// for everything, so that a stored chunk is there until it is deleted.
type liars struct {
	*rig
	rnd    *rand.Rand
	keys   []key.Hash
	honest []*key.Chain
	stored map[key.Key]bool
}

func newLiars(t *testing.T, seed uint64, disk *tiertest.Memory) *liars {
	l := &liars{
		rig:  newRig(t, options{capacity: claimKeys / 2 * claimSize, disk: disk}),
		rnd:  rand.New(rand.NewPCG(seed, 0)),
		keys: tiertest.Chain(1, claimKeys).Hashes,
	}
	l.see(tiertest.Chain(1, claimKeys))
	for i := range uint64(16) {
		l.honest = append(l.honest, tiertest.Chain(100+i, 12))
		l.see(l.honest[i])
	}
	return l
}

// chain is a lie of up to 12 keys, none of them twice, or an honest one.
func (l *liars) chain() *key.Chain {
	if l.rnd.IntN(4) == 0 {
		return l.honest[l.rnd.IntN(len(l.honest))]
	}
	n := 1 + l.rnd.IntN(12)
	c := tiertest.Chain(1, n)
	c.Chained, c.Hashes = l.rnd.IntN(2) == 0, nil // who computes hashes may meet claims about them
	for i, at := range l.rnd.Perm(24)[:n] {
		base := l.rnd.IntN(claimKeys/24) * 24
		if i == 0 || l.rnd.IntN(8) > 0 {
			base = 0
		}
		c.Hashes = append(c.Hashes, l.keys[base+at])
	}
	return c
}

// put stores the missing chunks of a chain, from some chunk on.
func (l *liars) put(c *key.Chain) {
	from := l.rnd.IntN(c.Len())
	grants, err := l.reserve(ledger.Daemon, c, from, c.Len(), claimSize)
	if err != nil && !errors.Is(err, tier.ErrNoSpace) { // a deleted chunk that is being written is busy
		l.t.Fatalf("reserve: %v", err)
	}
	for i, g := range grants {
		k := c.Key(from + i)
		if (g.Status == store.Granted) == l.stored[k] {
			l.t.Fatalf("chunk %x was granted as %d, stored: %v", k.Hash, g.Status, l.stored[k])
		}
		if g.Status == store.Granted {
			commit(l.Store, c, from+i, fill(c, from+i, grants[i:i+1]))
			l.stored[k] = true
		}
	}
}

// read looks a chain up and loads the chunks that were found.
func (l *liars) read(c *key.Chain) {
	want := 0
	for want < c.Len() && l.stored[c.Key(want)] {
		want++
	}
	if m := l.match(c); m.Chunks != want {
		l.t.Fatalf("%d chunks were found, want %d", m.Chunks, want)
	}
	for i := range want {
		if err := l.load(c, i); err != nil {
			l.t.Fatalf("chunk %d: %v", i, err)
		}
	}
}

func (l *liars) delete(c *key.Chain) {
	i := l.rnd.IntN(c.Len())
	if _, err := l.Remover.Delete(l.t.Context(), tiertest.Keys(c, i, i+1)); err != nil {
		l.t.Fatal(err)
	}
	delete(l.stored, c.Key(i))
}

// TestClaims: which chunk follows which is only a claim. A chunk that was
// stored under a key is found under it and has its bytes, also after a restart, and
// nothing is left behind: the end of each rig audits ledger, index and arena.
func TestClaims(t *testing.T) {
	disk, stored := tiertest.NewMemory("disk", 64*mib), make(map[key.Key]bool)
	for phase, ops := 0, min(20_000, *claimOps/2); phase*ops < *claimOps && !t.Failed(); phase++ {
		t.Run(strconv.Itoa(phase), func(t *testing.T) {
			l := newLiars(t, *claimSeed+uint64(phase), disk)
			l.stored = stored
			for range ops {
				switch c := l.chain(); l.rnd.IntN(8) {
				case 0:
					l.delete(c)
				case 1, 2, 3:
					l.put(c)
				default:
					l.read(c)
				}
			}
			l.flush()
			if l.Store.Operator.Stats().Inconsistent == 0 {
				t.Error("no contradiction is counted")
			}
		})
		disk = disk.Reopen()
	}
}

// What a chain skips gives a position and nothing else: it may be gone, or unknown.
func TestSkippedChunksMayBeUnknown(t *testing.T) {
	r := newRig(t, options{lone: true})
	c := tiertest.Chain(1, 6)
	alone := *c
	alone.Chained, alone.Alone = false, true
	r.put(&alone, 4, 6, size)
	c.Chained = false
	for skip, want := range []int{0, 0, 0, 0, 2, 1} {
		c.Skip = skip
		if m := r.match(c); m.Chunks != want {
			t.Errorf("%d chunks skipped: %d found, want %d", skip, m.Chunks, want)
		}
	}
}
