package store_test

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/kvstored/kvstored/internal/explain"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
	"github.com/kvstored/kvstored/tier/tierfault"
	"github.com/kvstored/kvstored/tier/tiertest"
)

// twoBelow is a rig with a disk and a remote tier whose puts wait at a gate
// each.
type twoBelow struct {
	*rig
	remote          *tiertest.Memory
	diskGate, fgate chan struct{}
	diskErr         error // of puts on disk, once the gate is open
}

func newTwoBelow(t *testing.T, o options) *twoBelow {
	b := &twoBelow{remote: tiertest.NewMemory("remote", 64*mib), diskGate: make(chan struct{}), fgate: make(chan struct{})}
	o.hook = func(c tierfault.Call) tierfault.Fault {
		if c.Op != tierfault.Put {
			return tierfault.Fault{}
		}
		<-b.diskGate
		return tierfault.Fault{Err: b.diskErr}
	}
	o.remote = struct{ tier.Tier }{tierfault.Wrap(b.remote, tierfault.On(tierfault.Put, tierfault.Fault{Until: b.fgate}))}
	b.rig = newRig(t, o)
	return b
}

// behind stores a chunk that DRAM evicts before any tier below has come to it.
func (b *twoBelow) behind() *key.Chain {
	b.putChain(1, 1)
	synctest.Wait() // it is in everybody's hands
	c := b.putChain(2, 1)
	b.evict()
	b.wantIn(c, 1, 0) // in the hands of a writer
	return c
}

func (b *twoBelow) wantInRemote(c *key.Chain) {
	b.t.Helper()
	if !b.remote.Has(c.Key(0)) {
		b.t.Errorf("the remote tier lacks a chunk; given up: %v", b.Writers.Written()[tier.Remote].Dropped)
	}
	if d := b.Writers.Written()[tier.Remote].Dropped; len(d) > 0 {
		b.t.Errorf("given up on the way to the remote tier: %v", d)
	}
}

// A chunk that DRAM evicts on its way to the disk reaches the tier behind that
// too, with either tier first and whether or not the disk takes it.
func TestVictimsArePassedOn(t *testing.T) {
	for name, tc := range map[string]struct {
		farFirst bool
		err      error
	}{
		"the disk is first":         {false, nil},
		"the disk is last":          {true, nil},
		"the disk refuses":          {true, errors.New("no")},
		"the disk refuses it first": {false, errors.New("no")},
	} {
		for written, mode := range modes {
			t.Run(name+", "+written, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					b := newTwoBelow(t, options{mode: mode, workers: 1})
					b.diskErr = tc.err
					c := b.behind()
					first, second := b.diskGate, b.fgate
					if tc.farFirst {
						first, second = second, first
					}
					close(first)
					synctest.Wait()
					close(second)
					b.flush()
					b.wantInRemote(c)
					if b.disk.Has(c.Key(0)) != (tc.err == nil) {
						t.Error("the disk has it, or not, as it should not")
					}
				})
			})
		}
	}
}

// A chunk that is in no nearer tier any more when its turn comes is counted.
func TestGoneBeforeItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTwoBelow(t, options{workers: 1})
		c := b.behind()
		close(b.diskGate)
		synctest.Wait()
		b.wantIn(c, 0, 1)
		if err := b.disk.Delete(t.Context(), tiertest.Keys(c, 0, 1)); err != nil { // as Trim would
			t.Fatal(err)
		}
		close(b.fgate)
		b.flush()
		if n := b.Writers.Written()[tier.Remote].Dropped[explain.Gone].Chunks; n == 0 {
			t.Error("a chunk was not written, and nobody says so")
		}
		if _, err := b.Remover.Delete(t.Context(), tiertest.Keys(c, 0, 1)); err != nil { // the index was not told
			t.Error(err)
		}
	})
}

// A victim that goes to two tiers is in memory once, and is charged once.
func TestVictimIsChargedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTwoBelow(t, options{mode: held, workers: 1})
		b.putChain(1, 3)
		b.evict()
		synctest.Wait()
		charged := func() int64 { return b.hot.Ledger().Stats().ClassBytes[ledger.Unwritten] }
		if n := charged(); n != 3*size {
			t.Errorf("%d bytes are charged for victims that occupy %d", n, 3*size)
		}
		close(b.diskGate)
		synctest.Wait()
		if n := charged(); n != 3*size {
			t.Errorf("%d bytes are charged for victims that occupy %d", n, 3*size)
		}
		close(b.fgate)
		synctest.Wait()
		if n := charged(); n != 0 {
			t.Errorf("%d bytes are charged for nothing", n)
		}
	})
}

// What the disk refused has another chance there when DRAM evicts it, even if
// the remote tier took it.
func TestDirtyUntilOnDisk(t *testing.T) {
	for name, mode := range modes {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newTwoBelow(t, options{mode: mode})
				b.diskErr = errors.New("no")
				close(b.diskGate)
				close(b.fgate)
				c := b.putChain(1, 1)
				b.flush()
				b.wantInRemote(c)
				b.diskErr = nil
				b.evict()
				b.flush()
				b.wantOnDisk(c, 0)
				if n := b.Writers.Written()[tier.Remote].Written.Chunks; n != 1 {
					t.Errorf("the remote tier was given it %d times", n)
				}
			})
		})
	}
}

// A deletion need not wait for what the writers have not begun: a chunk that
// one was about to bring up from the disk does not come up any more.
func TestDeleteBeforeItIsRaised(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		busy, last, below := make(chan struct{}), make(chan struct{}), make(chan struct{})
		others, c := tiertest.Chain(1, 2), tiertest.Chain(2, 2)
		far := tierfault.Wrap(tiertest.NewMemory("remote", 64*mib), func(call tierfault.Call) tierfault.Fault {
			switch {
			case call.Op != tierfault.Put:
				return tierfault.Fault{}
			case call.Keys[0] == others.Key(0):
				return tierfault.Fault{Until: busy}
			case call.Keys[0] == c.Key(1):
				t.Error("a deleted chunk is written")
			}
			return tierfault.Fault{Until: last}
		})
		r := newRig(t, options{
			remote: struct{ tier.Tier }{far}, workers: 2,
			hook: tierfault.On(tierfault.Delete, tierfault.Fault{Until: below}),
		})
		r.put(others, 0, 2, size)
		synctest.Wait()
		r.put(c, 0, 2, size)
		synctest.Wait() // on disk, and behind others on the way to remote
		r.evict()
		r.wantIn(c, 0, 2)
		close(busy)
		synctest.Wait() // the first is on its way now, the second is next
		deleted := make(chan struct{})
		go func() {
			defer close(deleted)
			if _, err := r.Remover.Delete(t.Context(), tiertest.Keys(c, 1, 2)); err != nil {
				t.Error(err)
			}
		}()
		synctest.Wait() // the disk still has it
		close(last)
		synctest.Wait()
		close(below)
		<-deleted
		r.flush()
	})
}
