package store_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/kvstored/kvstored/internal/explain"
	"github.com/kvstored/kvstored/internal/writeback"
	"github.com/kvstored/kvstored/tier"
	"github.com/kvstored/kvstored/tier/tierfault"
	"github.com/kvstored/kvstored/tier/tiertest"
)

// farRig is a rig with a remote tier that can fail, behind a breaker.
type farRig struct {
	*rig
	far     *tiertest.Memory
	trouble *tierfault.Switch
}

func newFarRig(t *testing.T, o options) *farRig {
	r := &farRig{far: tiertest.NewMemory("remote", 64*mib), trouble: &tierfault.Switch{Fault: tierfault.Fault{Err: errIO}}}
	o.remote = tier.WithBreaker(struct{ tier.Tier }{tierfault.Wrap(r.far, r.trouble.Hook)}, tier.BreakerOptions{})
	r.rig = newRig(t, o)
	return r
}

// want checks how many chunks the remote tier has and how many will be offered
// to it again.
func (r *farRig) want(stored, missed int) {
	r.t.Helper()
	w := r.Writers.Written()[tier.Remote]
	if n := r.far.Stats().Entries; n != int64(stored) || w.Missed != missed {
		r.t.Errorf("%d chunks are there, %d will be offered again; want %d and %d", n, w.Missed, stored, missed)
	}
}

// A chunk committed while the remote tier was off is there once it works
// again, whether it is still in DRAM or on disk only.
func TestMissed(t *testing.T) {
	for name, evicted := range map[string]bool{"in DRAM": false, "on disk": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newFarRig(t, options{})
				r.trouble.Set(true)
				r.putChain(1, 20)
				time.Sleep(time.Minute)
				if evicted {
					r.evict()
				}
				synctest.Wait()
				r.want(0, 20)
				if calls := r.trouble.Calls(); calls > 40 {
					t.Errorf("%d calls of a tier that is off", calls)
				}
				r.trouble.Set(false)
				time.Sleep(time.Minute)
				synctest.Wait()
				r.want(20, 0)
			})
		})
	}
}

// A flush does not wait for the next probe, nor for what cannot be written.
func TestFlushOffersMissed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFarRig(t, options{})
		r.trouble.Set(true)
		r.putChain(1, 20)
		time.Sleep(time.Minute + time.Second) // it is offered every two
		start := time.Now()
		r.flush()
		r.want(0, 20)
		d := r.Writers.Written()[tier.Remote].Dropped
		if n := d[explain.WhileOff].Plus(d[explain.WriteFailed]); n.Chunks != 20 {
			t.Errorf("%d chunks were dropped; want 20, each once", n.Chunks)
		}
		if reason, v := r.Writers.Unflushed(writeback.Volume{}); reason != "dropped_before" || v != (writeback.Volume{Chunks: 20, Bytes: 20 * size}) {
			t.Errorf("a flush says that %+v are lacking, because of %q", v, reason)
		}
		r.trouble.Set(false)
		r.flush()
		r.want(20, 0)
		if took := time.Since(start); took != 0 {
			t.Errorf("two flushes took %v", took)
		}
	})
}

// Where chunks are held a victim goes to disk first. That the remote tier was off
// then is made up for by a flush.
func TestMissedVictims(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFarRig(t, options{mode: held})
		r.trouble.Set(true)
		r.putChain(1, 6)
		r.flush() // opens the breaker
		r.putChain(2, 4)
		r.evict()
		synctest.Wait()
		r.want(0, 10)
		r.trouble.Set(false)
		r.flush()
		r.want(10, 0)
	})
}

// A chunk deleted in between is not stored.
func TestMissedAndDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFarRig(t, options{})
		r.trouble.Set(true)
		c := r.putChain(1, 4) // too few to open the breaker
		synctest.Wait()
		r.want(0, 4)
		r.trouble.Set(false)
		if _, err := r.Remover.Delete(t.Context(), tiertest.Keys(c, 1, 4)); err != nil {
			t.Fatal(err)
		}
		r.flush()
		r.want(1, 0)
	})
}

// A chunk that fails while others succeed is not offered for ever.
func TestMissedInVain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := tiertest.Chain(1, 4)
		r := newRig(t, options{hook: tierfault.OnKey(tierfault.Put, c.Key(3), tierfault.Fault{Err: errIO})})
		r.put(c, 0, 4, size)
		time.Sleep(time.Minute)
		synctest.Wait()
		r.wantWritten(3, map[explain.Decline]uint64{explain.WriteFailed: 1})
		if n := r.Writers.Written()[tier.Disk].Missed; n != 0 {
			t.Errorf("%d chunks will be offered again", n)
		}
	})
}
