package store_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/explain"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/internal/store"
	"github.com/kvstored/kvstored/internal/writeback"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
	"github.com/kvstored/kvstored/tier/tierfault"
	"github.com/kvstored/kvstored/tier/tiertest"
)

var (
	modelSeeds = flag.Int("model.seeds", 1, "seeds of TestModel per kind of store")
	modelSteps = flag.Int("model.steps", 150, "steps of every worker of TestModel")
	modelFirst = flag.Uint64("model.first", 1, "the first seed of TestModel")
)

const modelSize = 8 * kib

// model is a store over three tiers under random work, with the answers that are
// certain. Every payload tells its key and its version, which is larger than those
// before, so that a deleted or replaced payload that comes back is recognized.
type model struct {
	*rig
	mode   writeback.When
	calm   bool // no tier is ever in trouble, and those below are roomy
	remote *tiertest.Memory
	chains []*key.Chain
	names  []*key.Chain    // of a space that is kept local, changed by Replace
	turn   []chan struct{} // to change each name
	temps  atomic.Uint64
	last   atomic.Uint64            // version
	down   [tier.Places]atomic.Bool // the tier fails

	mu    sync.Mutex
	known map[key.Key]*certain
}

// certain is the known facts of one key.
type certain struct {
	dead     uint64          // versions up to this one were deleted or replaced
	never    map[uint64]bool // versions that were refused
	live     uint64          // what is there, unless it was evicted everywhere; 0 = not certain
	deleting int
	deletes  int // begun
}

func newModel(t *testing.T, seed uint64, mode writeback.When, calm bool) *model {
	m := &model{mode: mode, calm: calm, known: make(map[key.Key]*certain)}
	m.remote = tiertest.NewMemory("remote", 1<<40)
	room := int64(40 * modelSize)
	if calm {
		room = 1 << 40
	}
	o := options{
		capacity: 24 * modelSize,
		verify:   5,
		mode:     mode,
		workers:  3,
		disk:     tiertest.NewMemory("disk", room),
		hook:     m.trouble(tier.Disk, seed),
		breaker:  &tier.BreakerOptions{Failures: 3, Pause: 20 * time.Millisecond, PauseMax: 100 * time.Millisecond, Log: zerolog.Nop()},
	}
	if !calm {
		o.limits = ledger.Limits{Lease: 12 * modelSize, Load: 6 * modelSize, Unwritten: 6 * modelSize, Total: 20 * modelSize}
	}
	far := deaf{tierfault.Wrap(m.remote, m.trouble(tier.Remote, seed+1))}
	o.remote = tier.WithBreaker(far, *o.breaker)
	m.rig = newRig(t, o)
	for i := range uint64(8) {
		m.chains = append(m.chains, tiertest.Chain(100+i, 5))
		c := tiertest.Chain(200+i, 1)
		m.names = append(m.names, c)
		c.Space = m.names[0].Space
	}
	m.Writers.KeepLocal(m.names[0].Space)
	m.turn = make([]chan struct{}, len(m.names))
	for i := range m.turn {
		m.turn[i] = make(chan struct{}, 1)
	}
	for _, c := range append(m.names, m.chains...) {
		m.see(c)
		for i := range c.Len() {
			m.known[c.Key(i)] = &certain{never: make(map[uint64]bool)}
		}
	}
	return m
}

// deaf is a far tier that cannot be asked for its chunks, and delays the end of
// each Get, also of one whose context has ended.
type deaf struct{ tier.Tier }

func (d deaf) Get(ctx context.Context, k key.Key, a tier.Allocator) (arena.Block, error) {
	b, err := d.Tier.Get(ctx, k, a)
	time.Sleep(time.Duration(k.Hash[0]) % 7 * time.Millisecond)
	return b, err
}

// trouble delays the calls of a tier, and fails some unless all is calm.
func (m *model) trouble(p tier.Place, seed uint64) tierfault.Hook {
	return func(c tierfault.Call) tierfault.Fault {
		r := rand.New(rand.NewPCG(seed, uint64(c.N)<<8|uint64(c.Op[0])))
		f := tierfault.Fault{Delay: time.Duration(r.IntN(4000)) * time.Microsecond, Late: r.IntN(3) == 0}
		if c.Op == tierfault.Recover || c.Op == tierfault.Sync || c.Op == tierfault.Trim {
			return tierfault.Fault{}
		}
		if !m.calm && (m.down[p].Load() || r.IntN(60) == 0) {
			f.Err = errIO
		}
		return f
	}
}

// isName reports whether only Replace stores k: of others, two clients may store
// versions of their own, and either may stay.
func (m *model) isName(k key.Key) bool { return k.Space == m.names[0].Space }

// write fills a block with a new version of k.
func (m *model) write(b arena.Block, k key.Key) uint64 {
	v := m.last.Add(1)
	b.SealSum(b.Write(versionOf(k, v, b.Len())))
	return v
}

func versionOf(k key.Key, v uint64, n int) []byte {
	p := binary.LittleEndian.AppendUint64(make([]byte, 0, n), v)
	r := rand.NewPCG(binary.LittleEndian.Uint64(k.Hash[:])^uint64(k.Space[0]), v)
	for len(p) < n {
		p = binary.LittleEndian.AppendUint64(p, r.Uint64())
	}
	return p
}

// check fails if b is not a version of k that may be read by a client that
// began when all up to dead were gone.
func (m *model) check(k key.Key, b []byte, dead uint64) error {
	v := binary.LittleEndian.Uint64(b)
	if !bytes.Equal(b, versionOf(k, v, len(b))) {
		return fmt.Errorf("%v: wrong bytes in version %d", k, v)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if v <= dead || m.known[k].never[v] {
		return fmt.Errorf("%v: read version %d, and those up to %d were deleted before (never stored: %t)", k, v, dead, m.known[k].never[v])
	}
	return nil
}

// allowed reports whether an error is an answer.
func (m *model) allowed(err error) bool {
	for _, ok := range []error{tier.ErrNotFound, tier.ErrNoSpace, tier.ErrOverBudget, ledger.ErrBusy, context.DeadlineExceeded} {
		if errors.Is(err, ok) {
			return true
		}
	}
	return err == nil || !m.calm && (errors.Is(err, tier.ErrOff) || errors.Is(err, errIO))
}

func (m *model) put(o ledger.Owner, rnd *rand.Rand) error {
	c := m.chains[rnd.IntN(len(m.chains))]
	from := rnd.IntN(c.Len())
	n := min(1+rnd.IntN(3), c.Len()-from)
	began := make([]int, n) // deletions before
	m.mu.Lock()
	for i := range n {
		began[i] = m.known[c.Key(from+i)].deletes
	}
	m.mu.Unlock()
	grants := make([]store.Grant, n)
	got, err := m.Filler.Reserve(m.t.Context(), store.Reservation{Owner: o}, c, from, repeat(modelSize, n), grants)
	if !m.allowed(err) {
		return err
	}
	time.Sleep(time.Duration(rnd.IntN(500)) * time.Microsecond)
	for i, g := range grants[:got] {
		switch k := c.Key(from + i); {
		case g.Status != store.Granted:
		case rnd.IntN(8) == 0:
			m.Filler.Abort([]tier.Ref{g.Ref})
		default:
			v := m.write(g.Ref.Block, k)
			commit(m.Store, c, from+i, []tier.Ref{g.Ref})
			m.stored(k, v, began[i])
		}
	}
	return nil
}

// stored notes a chunk that is there, unless a deletion was under way meanwhile.
func (m *model) stored(k key.Key, v uint64, deletes int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s := m.known[k]; s.deleting == 0 && s.deletes == deletes {
		s.live = v
	}
}

func (m *model) load(by store.Requester, rnd *rand.Rand) error {
	c, i := m.chains[rnd.IntN(len(m.chains))], 0
	if rnd.IntN(3) == 0 {
		c = m.names[rnd.IntN(len(m.names))]
	} else {
		i = rnd.IntN(c.Len())
	}
	ctx := m.t.Context()
	if rnd.IntN(8) == 0 {
		short, cancel := context.WithTimeout(ctx, time.Duration(rnd.IntN(3000))*time.Microsecond)
		defer cancel()
		ctx = short
	}
	k := c.Key(i)
	m.mu.Lock()
	dead := m.known[k].dead
	m.mu.Unlock()
	ref, _, err := m.Loader.Load(ctx, by, c, i, tier.All)
	if err != nil {
		if m.allowed(err) {
			return nil
		}
		return err
	}
	defer m.Leases.Release(by.Owner, ledger.Lease, []tier.Ref{ref})
	if err := m.check(k, ref.Block.Bytes(), dead); err != nil {
		return err
	}
	time.Sleep(time.Duration(rnd.IntN(2000)) * time.Microsecond)
	m.Leases.Touch(c, i, i+1)
	return m.check(k, ref.Block.Bytes(), dead)
}

// delete deletes chunks, or a whole space.
func (m *model) delete(ks []key.Key, do func() error) error {
	top := make([]uint64, len(ks))
	m.mu.Lock()
	for i, k := range ks {
		s := m.known[k]
		s.deleting++
		s.deletes++
		top[i], s.live = s.live, 0
	}
	m.mu.Unlock()
	err := do()
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, k := range ks {
		s := m.known[k]
		s.deleting--
		if err == nil {
			s.dead = max(s.dead, top[i])
		}
	}
	if m.allowed(err) {
		return nil
	}
	return err
}

// replace stores a name anew, or deletes it.
func (m *model) replace(o ledger.Owner, rnd *rand.Rand) error {
	i := rnd.IntN(len(m.names))
	c := m.names[i]
	k := c.Key(0)
	m.turn[i] <- struct{}{}
	defer func() { <-m.turn[i] }()
	if rnd.IntN(4) == 0 {
		return m.delete([]key.Key{k}, func() error {
			_, err := m.Remover.Delete(m.t.Context(), []key.Key{k})
			return err
		})
	}
	temp := key.Key{Space: c.Space}
	binary.BigEndian.PutUint64(temp.Hash[:], m.temps.Add(1))
	ref, err := m.Filler.Open(m.t.Context(), o, temp, modelSize, tier.AtOnce)
	if err != nil {
		if m.allowed(err) {
			return nil
		}
		return err
	}
	v := m.write(ref.Block, k)
	m.mu.Lock()
	m.known[k].live = 0
	m.mu.Unlock()
	err = m.Filler.Replace(m.t.Context(), c, ref)
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.known[k]
	if err == nil {
		s.dead, s.live = v-1, v
		return nil
	}
	s.never[v] = true
	if m.allowed(err) {
		return nil
	}
	return err
}

func (m *model) step(o ledger.Owner, rnd *rand.Rand) error {
	switch n := rnd.IntN(100); {
	case n < 35:
		return m.put(o, rnd)
	case n < 60:
		return m.load(store.Requester{Owner: o}, rnd)
	case n < 66:
		return m.load(store.Requester{Owner: o, Idle: true}, rnd)
	case n < 74:
		c := m.chains[rnd.IntN(len(m.chains))]
		from := rnd.IntN(c.Len())
		ks := tiertest.Keys(c, from, min(from+1+rnd.IntN(3), c.Len()))
		return m.delete(ks, func() error {
			_, err := m.Remover.Delete(m.t.Context(), ks)
			return err
		})
	case n < 76:
		return m.deleteSpace(m.chains[rnd.IntN(len(m.chains))])
	case n < 90:
		return m.replace(o, rnd)
	case n < 94:
		m.evict()
	case n < 96:
		if err := m.Writers.Flush(m.t.Context(), n == 95); !m.allowed(err) {
			return err
		}
	case n < 98 && !m.calm:
		p := tier.Disk + tier.Place(rnd.IntN(2))
		m.down[p].Store(true)
		time.AfterFunc(time.Duration(rnd.IntN(50))*time.Millisecond, func() { m.down[p].Store(false) })
	default:
		time.Sleep(time.Duration(rnd.IntN(20)) * time.Millisecond)
	}
	return nil
}

// deleteSpace deletes the space of a chain, in which nothing else is.
func (m *model) deleteSpace(c *key.Chain) error {
	return m.delete(tiertest.Keys(c, 0, c.Len()), func() error {
		_, err := m.Remover.DeleteSpace(m.t.Context(), c.Space)
		return err
	})
}

// settled checks the tiers when no work is under way and everything was written:
// with tiers that were never in trouble, that it is all there.
func (m *model) settled() {
	for k, s := range m.known {
		if !m.calm || s.live == 0 {
			continue
		}
		local := m.isName(k)
		if !m.disk.Has(k) || m.remote.Has(k) == local {
			m.t.Errorf("%v: on disk %t, in remote %t, kept local %t", k, m.disk.Has(k), m.remote.Has(k), local)
		}
	}
	if m.calm {
		for p, w := range m.Writers.Written() {
			for why, v := range w.Dropped {
				if why != explain.Gone { // which also counts what was deleted
					m.t.Errorf("%d chunks never reached %s: %s", v.Chunks, p, why)
				}
			}
		}
	}
	for _, c := range append(m.names, m.chains...) {
		for i := range c.Len() {
			m.settledAt(c, i)
		}
	}
}

// settledAt reads a chunk back, from below if it is not in DRAM.
func (m *model) settledAt(c *key.Chain, i int) {
	k := c.Key(i)
	s := m.known[k]
	ref, _, err := m.Loader.Load(m.t.Context(), store.Requester{Owner: ledger.Daemon}, c, i, tier.All)
	switch {
	case err == nil:
		defer m.Leases.Release(ledger.Daemon, ledger.Lease, []tier.Ref{ref})
		if err := m.check(k, ref.Block.Bytes(), s.dead); err != nil {
			m.t.Error(err)
		} else if v := binary.LittleEndian.Uint64(ref.Block.Bytes()); s.live != 0 && v != s.live && m.isName(k) {
			m.t.Errorf("%v: read version %d, and %d was stored last", k, v, s.live)
		}
	case !m.allowed(err):
		m.t.Error(err)
	case m.calm && s.live != 0:
		m.t.Errorf("%v: %d was stored, and is gone: %v", k, s.live, err)
	}
}

// TestModel lets workers put, load, delete, replace, evict and flush at random
// over three tiers that take their time and, unless all is calm, fail and are
// switched off. No wrong byte is ever read, and nothing that was deleted or
// replaced before the read began; what a flush has acknowledged is where the
// mode wants it; and in the end nothing is held, no goroutine runs, and the index is
// true (rig.stop).
func TestModel(t *testing.T) {
	for name, mode := range modes {
		for weather, calm := range map[string]bool{"calm": true, "stormy": false} {
			for seed := range uint64(*modelSeeds) {
				seed += *modelFirst
				t.Run(fmt.Sprintf("%s/%s/%d", name, weather, seed), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { newModel(t, seed, mode, calm).run(seed) })
				})
			}
		}
	}
}

func (m *model) run(seed uint64) {
	synctest.Wait() // the disk is scanned
	for phase := range uint64(3) {
		var workers sync.WaitGroup
		for n := range uint64(6) {
			workers.Go(func() {
				o := m.Leases.NewOwner()
				defer m.Leases.CloseOwner(o)
				rnd := rand.New(rand.NewPCG(seed, phase<<8|n))
				for range cmp.Or(*modelSteps, 1) {
					if err := m.step(o, rnd); err != nil {
						m.t.Errorf("worker %d: %v", n, err)
						return
					}
				}
			})
		}
		workers.Wait()
		time.Sleep(time.Second) // who was switched off is on again
		if err := m.Writers.Flush(m.t.Context(), true); !m.allowed(err) {
			m.t.Errorf("flush: %v", err)
		}
		m.settled()
		if m.t.Failed() {
			return
		}
		m.evict()
		m.settled()
	}
	synctest.Wait()
}
