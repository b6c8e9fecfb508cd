package server_test

import (
	"sync"
	"testing"
	"testing/synctest"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier/tierfault"
	"github.com/kvstored/kvstored/tier/tiertest"
)

// TestLoadsOfUsers: while a user has all its places for loads taken, another has its own,
// and the disk reads for both in turns: the other is served long before what the first has
// asked for.
func TestLoadsOfUsers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const jobs, each, bytes = 20, 64, 512 // more than the places
		bobs := make(map[key.Key]bool)        // still to be read
		for _, k := range tiertest.Keys(chain(jobs+1, each), 0, each) {
			bobs[k] = true
		}
		var mu sync.Mutex
		reads := 0
		step := make(chan struct{}) // lets one read for alice end, or all when closed
		o := options{capacity: 16 * mib, hook: func(c tierfault.Call) tierfault.Fault {
			if c.Op != tierfault.Get {
				return tierfault.Fault{}
			}
			mu.Lock()
			defer mu.Unlock()
			reads++
			if bobs[c.Keys[0]] {
				delete(bobs, c.Keys[0])
				return tierfault.Fault{}
			}
			return tierfault.Fault{Until: step}
		}}
		state := func() (read, left int) {
			mu.Lock()
			defer mu.Unlock()
			return reads, len(bobs)
		}
		o.Prefetch.WindowBytes = 1 << 40 // else each job waits for its first chunk to know their size
		r := newRig(t, o)
		ctx := t.Context()
		for i := range jobs + 1 {
			r.onDiskSized(chain(uint64(i+1), each), 0, each, bytes)
		}
		var clients [2]*client.Client
		for i, uid := range []uint32{alice, bob} {
			c, err := r.dialAs(uid, client.Options{Space: &space})
			r.must(err)
			clients[i] = c
		}
		var running []*client.Job
		begin := func(c *client.Client) {
			j, err := c.Prefetch(ctx, client.Chain(chain(uint64(len(running)+1), each)), client.PrefetchOptions{})
			r.must(err)
			running = append(running, j)
		}
		for range jobs {
			begin(clients[0])
		}
		places := r.server.LoadPlaces()
		r.until("alice has all her places", func() bool { return r.server.LoadsUnderWay() == places })
		begin(clients[1])
		steps := 0
		for ; steps < jobs*each/4; steps++ {
			was, left := state()
			if left == 0 {
				break
			}
			step <- struct{}{}
			r.until("the disk is asked for the next", func() bool { now, _ := state(); return now > was })
		}
		if _, left := state(); left > 0 {
			t.Errorf("%d of bob's %d chunks wait behind %d of alice's", left, each, steps)
		}
		close(step)
		r.loaded(running, each)
		t.Logf("bob's %d chunks were read while %d of alice's were", each, steps)
	})
}
