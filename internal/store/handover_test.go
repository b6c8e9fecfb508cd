package store_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/internal/store"
	"github.com/kvstored/kvstored/internal/writeback"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
	"github.com/kvstored/kvstored/tier/tierfault"
	"github.com/kvstored/kvstored/tier/tiertest"
)

// evictSlowly makes DRAM give up everything for one huge chunk, with a call of left and a pause
// at the gate between the moment a victim has left DRAM and its hand-over.
func (r *rig) evictSlowly(gate <-chan struct{}, left func()) {
	huge := tiertest.Chain(1<<41, 1)
	f := tier.Fill{
		Record: tier.Record{Key: huge.Key(0), Size: uint32(r.arena.Stats().CapacityBytes)}, Class: ledger.Lease,
		Drop: func(v tier.Victim) bool {
			left()
			<-gate
			return r.DropVictim(v)
		},
	}
	if ref, _, err := r.hot.Reserve(r.t.Context(), f); err == nil {
		r.Filler.Abort([]tier.Ref{ref})
	}
}

// leaving is a rig with a chain of two chunks whose tail has just left DRAM: it
// is handed over when the gate opens, after as many turns of others as a caller that does
// not wait may need. evicted is closed when both are.
func leaving(t *testing.T) (r *rig, c *key.Chain, gate, evicted chan struct{}) {
	gate, evicted = make(chan struct{}), make(chan struct{})
	out := make(chan struct{})
	r = newRig(t, options{mode: held, workers: 1})
	c = r.putChain(1, 2)
	go func() {
		defer close(evicted)
		r.evictSlowly(gate, sync.OnceFunc(func() { close(out) }))
	}()
	<-out
	go func() {
		for range 100_000 {
			runtime.Gosched()
		}
		close(gate)
	}()
	return r, c, gate, evicted
}

// A flush also waits for a chunk that is just leaving DRAM: it is in no tier and in
// no queue for a moment.
func TestFlushWaitsForHandover(t *testing.T) {
	r, c, gate, evicted := leaving(t)
	r.flush()
	select {
	case <-gate:
	default:
		t.Error("flush returned while a chunk was on its way out of DRAM")
	}
	for i := range 2 {
		if !r.disk.Has(c.Key(i)) {
			t.Errorf("chunk %d is not on disk after a flush", i)
		}
	}
	<-evicted // until then there may be no room to read them
	for i := range 2 {
		r.wantOnDisk(c, i)
	}
	r.flush()
	r.wantWritten(2, nil)
}

// A chunk that is deleted while it leaves DRAM is not written.
func TestDeleteDuringHandover(t *testing.T) {
	r, c, _, evicted := leaving(t)
	if _, err := r.Remover.Delete(t.Context(), tiertest.Keys(c, 0, 2)); err != nil {
		t.Error(err)
	}
	<-evicted
	r.flush()
	if n := r.disk.Stats().Entries; n != 0 {
		t.Errorf("%d deleted chunks are on disk", n)
	}
	r.wantIn(c, 0, 0)
}

// late keeps the block that it has got from a remote tier until the gate opens,
// also when the context of the call ends.
type late struct {
	tier.Tier
	got  chan struct{}
	gate chan struct{}
}

func (l late) Get(ctx context.Context, k key.Key, a tier.Allocator) (arena.Block, error) {
	b, err := l.Tier.Get(ctx, k, a)
	close(l.got)
	<-l.gate
	return b, err
}

// A chunk that is deleted while it comes up does not come back, neither to DRAM nor,
// by way of it, to the disk.
func TestDeleteDuringLoad(t *testing.T) {
	for name, hook := range map[string]func(gate chan struct{}) tierfault.Hook{
		"delete ends first": func(gate chan struct{}) tierfault.Hook {
			return tierfault.On(tierfault.Get, tierfault.Fault{Until: gate, Late: true})
		},
		"load ends first": func(gate chan struct{}) tierfault.Hook {
			return tierfault.On(tierfault.Delete, tierfault.Fault{Until: gate})
		},
		"delete ends first, scanning": func(gate chan struct{}) tierfault.Hook {
			return func(c tierfault.Call) tierfault.Fault {
				switch c.Op {
				case tierfault.Get:
					return tierfault.Fault{Until: gate, Late: true}
				case tierfault.Recover:
					return tierfault.Fault{Hang: true}
				}
				return tierfault.Fault{}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				gate := make(chan struct{})
				r := newRig(t, options{hook: hook(gate), scanning: strings.HasSuffix(name, "scanning")})
				c := r.putChain(1, 3)
				r.flush()
				r.evict()
				r.wantIn(c, 0, 3)
				load := func() { _ = r.load(c, 1) }
				del := func() {
					if _, err := r.Remover.Delete(t.Context(), tiertest.Keys(c, 1, 2)); err != nil {
						t.Error(err)
					}
				}
				first, second := load, del
				if name == "load ends first" {
					first, second = del, load
				}
				go first()
				synctest.Wait()
				second()
				close(gate)
				synctest.Wait()
				if where := r.Where(c.Key(1)); where != 0 || r.hot.Has(c.Key(1)) {
					t.Errorf("a deleted chunk is in %b", where)
				}
			})
		})
	}
}

// The same of a tier that does not say which chunks it has, and does not heed that
// no load wants the bytes any more.
func TestDeleteDuringLateLoad(t *testing.T) {
	for name, again := range map[string]bool{"deleted": false, "stored again": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				far := late{tiertest.NewMemory("remote", 64*mib), make(chan struct{}), make(chan struct{})}
				r := newRig(t, options{remote: far})
				c := tiertest.Chain(1, 1)
				o := r.Leases.NewOwner()
				r.replace(o, c, 1, 7)
				r.flush()
				r.evict()
				if err := r.disk.Delete(t.Context(), tiertest.Keys(c, 0, 1)); err != nil {
					t.Fatal(err)
				}
				loaded := make(chan error)
				go func() {
					ref, _, err := r.Loader.Load(t.Context(), store.Requester{Owner: o}, c, 0, tier.Of(tier.Remote))
					if err == nil {
						if b := ref.Block.Bytes()[0]; b == 7 {
							err = errors.New("the old bytes")
						}
						r.Leases.Release(o, ledger.Lease, []tier.Ref{ref})
					}
					loaded <- err
				}()
				<-far.got
				if _, err := r.Remover.Delete(t.Context(), tiertest.Keys(c, 0, 1)); err != nil {
					t.Error(err)
				}
				replaced := make(chan struct{})
				go func() {
					defer close(replaced)
					if again {
						r.replace(o, c, 2, 8)
					}
				}()
				synctest.Wait()
				close(far.gate)
				if err := <-loaded; !again && !errors.Is(err, tier.ErrNotFound) {
					t.Errorf("a load of what was deleted: %v", err)
				} else if err != nil && !errors.Is(err, tier.ErrNotFound) {
					t.Error(err)
				}
				<-replaced
				r.flush()
				if again {
					if got := r.value(o, c); got != 8 {
						t.Errorf("read %d after 8 was stored", got)
					}
				} else if where := r.Where(c.Key(0)); where != 0 || r.hot.Has(c.Key(0)) || r.disk.Has(c.Key(0)) {
					t.Errorf("a deleted chunk is in %b", where)
				}
				r.Leases.CloseOwner(o)
			})
		})
	}
}

// A chunk that is deleted while it is written, by a caller that does not wait for that,
// and stored again meanwhile, ends up in both tiers: the first write must not
// take the second one's chunk back.
func TestStoreAgainWhileWritten(t *testing.T) {
	for name, late := range map[string]bool{"before the write": false, "after the write": true} {
		for kind, mode := range map[string]writeback.When{"an entry": through, "a victim": held} {
			t.Run(kind+" "+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					gate := make(chan struct{})
					puts := 0
					r := newRig(t, options{mode: mode, hook: func(c tierfault.Call) tierfault.Fault {
						if c.Op != tierfault.Put {
							return tierfault.Fault{}
						}
						if puts++; puts > 1 {
							return tierfault.Fault{}
						}
						return tierfault.Fault{Until: gate, Late: late}
					}})
					c := r.putChain(1, 1)
					if mode == held {
						r.evict()
					}
					synctest.Wait() // the first write waits at the gate
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					defer cancel()
					if _, err := r.Remover.Delete(ctx, tiertest.Keys(c, 0, 1)); !errors.Is(err, context.DeadlineExceeded) {
						t.Errorf("a deletion of what is being written, within a second: %v", err)
					}
					if late { // it is on disk until the deletion is made up for
						if g, err := r.reserve(ledger.Daemon, c, 0, 1, size); err != nil || g[0].Status != store.Exists {
							t.Errorf("what is still there: %v, %v", g, err)
						}
						close(gate)
						r.flush()
						r.wantIn(c, 0, 0)
						return
					}
					r.put(c, 0, 1, size)
					if mode == held {
						r.evict()
					}
					synctest.Wait()
					close(gate)
					r.flush()
					r.wantOnDisk(c, 0)
				})
			})
		}
	}
}
