package tier_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/tier"
	"github.com/kvstored/kvstored/tier/tierfault"
	"github.com/kvstored/kvstored/tier/tiertest"
)

// evictSlowly makes DRAM give up everything for one huge chunk, with a pause
// at the gate between the moment a victim has left DRAM and its hand-over.
func (r *rig) evictSlowly(gate <-chan struct{}) {
	huge := tiertest.Chain(1<<41, 1)
	f := tier.Fill{
		Record: tier.Record{Key: huge.Key(0), Size: uint32(r.arena.Stats().CapacityBytes)}, Class: ledger.Lease,
		Drop: func(v tier.Victim) bool {
			<-gate
			return r.DropVictim(v)
		},
	}
	if ref, _, err := r.hot.Reserve(r.t.Context(), f); err == nil {
		r.Abort([]tier.Ref{ref})
	}
}

// moment is long enough for whoever does not wait.
const moment = 20 * time.Millisecond

// A flush also waits for what is just leaving DRAM: it is in no tier and in
// no queue for a moment.
func TestFlushWaitsForHandover(t *testing.T) {
	gate := make(chan struct{})
	r := newRig(t, options{write: tier.WriteOptions{Mode: tier.WriteBack, Workers: 1}})
	c := r.putChain(1, 2)
	evicted := make(chan struct{})
	go func() {
		defer close(evicted)
		r.evictSlowly(gate)
	}()
	for r.hot.Has(c.Key(1)) {
		time.Sleep(moment)
	}
	time.AfterFunc(5*moment, func() { close(gate) })
	r.flush()
	select {
	case <-gate:
	default:
		t.Error("flush returned while a chunk was on its way out of DRAM")
	}
	for i := range 2 {
		r.wantOnDisk(c, i)
	}
	<-evicted
	r.flush()
	r.wantWritten(2, 0, nil)
}

// What is deleted while it leaves DRAM is not written.
func TestDeleteDuringHandover(t *testing.T) {
	gate := make(chan struct{})
	r := newRig(t, options{write: tier.WriteOptions{Mode: tier.WriteBack, Workers: 1}})
	c := r.putChain(1, 2)
	evicted := make(chan struct{})
	go func() {
		defer close(evicted)
		r.evictSlowly(gate)
	}()
	for r.hot.Has(c.Key(1)) {
		time.Sleep(moment)
	}
	time.AfterFunc(5*moment, func() { close(gate) })
	if _, err := r.Delete(t.Context(), tiertest.Keys(c, 0, 2)); err != nil {
		t.Error(err)
	}
	<-evicted
	r.flush()
	if n := r.disk.Stats().Entries; n != 0 {
		t.Errorf("%d deleted chunks are on disk", n)
	}
	r.wantIn(c, 0, 0)
}

// What is deleted while it comes up does not come back.
func TestDeleteDuringLoad(t *testing.T) {
	for name, op := range map[string]tierfault.Op{"delete ends first": tierfault.Get, "load ends first": tierfault.Delete} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				gate := make(chan struct{})
				r := newRig(t, options{hook: func(c tierfault.Call) tierfault.Fault {
					if c.Op == op {
						return tierfault.Fault{Until: gate, Late: op == tierfault.Get}
					}
					return tierfault.Fault{}
				}})
				c := r.putChain(1, 3)
				r.flush()
				r.evict()
				r.wantIn(c, 0, 3)
				load := func() { _ = r.load(c, 1) }
				del := func() {
					if _, err := r.Delete(t.Context(), tiertest.Keys(c, 1, 2)); err != nil {
						t.Error(err)
					}
				}
				first, second := load, del
				if op == tierfault.Delete {
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

// What is deleted while it is written, and stored again meanwhile, ends up in
// both tiers: the first write must not take the second one's chunk back.
func TestStoreAgainWhileWritten(t *testing.T) {
	for name, late := range map[string]bool{"before the write": false, "after the write": true} {
		for kind, mode := range map[string]tier.WriteMode{"an entry": tier.WriteThrough, "a victim": tier.WriteBack} {
			t.Run(kind+" "+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					gate := make(chan struct{})
					puts := 0
					r := newRig(t, options{write: tier.WriteOptions{Mode: mode}, hook: func(c tierfault.Call) tierfault.Fault {
						if c.Op != tierfault.Put {
							return tierfault.Fault{}
						}
						if puts++; puts > 1 {
							return tierfault.Fault{}
						}
						return tierfault.Fault{Until: gate, Late: late}
					}})
					c := r.putChain(1, 1)
					if mode == tier.WriteBack {
						r.evict()
					}
					synctest.Wait() // the first write waits at the gate
					if _, err := r.Delete(t.Context(), tiertest.Keys(c, 0, 1)); err != nil {
						t.Error(err)
					}
					r.put(c, 0, 1, size)
					if mode == tier.WriteBack {
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
