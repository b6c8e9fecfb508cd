package server_test

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/kvstored/kvstored/client"
)

// Writers that are not flushed have, together, all of the window reserved ahead. Another
// Writer stores all the same, and so does a plain reservation; what they have put is
// stored, and they go on.
func TestStocksGiveWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const window, writers = 2 * mib, 9
		r := newRig(t, options{capacity: 64 * mib})
		c := r.dial(client.Options{StagingBytes: window})
		ws := make([]*client.Writer, writers)
		var under []*client.Storing
		put := func(i, n int) {
			t.Helper()
			st, err := single{prompt: chain(uint64(100*i+n), 1), size: size, value: byte(10*i + n)}.start(t.Context(), ws[i], false)
			if err != nil {
				t.Errorf("put %d of writer %d: %v", n, i, err)
			}
			under = append(under, st)
		}
		for i := range ws {
			ws[i] = client.NewWriter(c)
			put(i, 0)
			put(i, 1)
		}
		const many = window / size / 2
		f, err := c.Reserve(t.Context(), client.Chain(chain(1<<20, many)), client.ReserveOptions{Size: size, AllOrNothing: true})
		if err != nil {
			t.Fatalf("beside %d writers: %v", writers, err)
		}
		r.must(f.Abort(t.Context()))
		for i := range ws {
			put(i, 2)
		}
		for i, st := range under {
			if got := outcome(t.Context(), st, nil); got != client.ResultStored.String() {
				t.Errorf("put %d: %s", i, got)
			}
		}
		for i := range ws {
			for n := range 3 {
				sameBytes(t, c, c, single{prompt: chain(uint64(100*i+n), 1), size: size, value: byte(10*i + n)})
			}
			r.must(ws[i].Flush(t.Context()))
		}
		windowIsFree(t, c, window)
	})
}

// What is reserved ahead is given back while Writers write into it, and no payload comes
// into the slot of another.
func TestStocksGiveWayAtWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const window, writers, puts = 8 * mib, 9, 60
		r := newRig(t, options{capacity: 128 * mib})
		c := r.dial(client.Options{StagingBytes: window})
		held, err := c.Reserve(t.Context(), client.Chain(chain(1<<20, 2)), client.ReserveOptions{Size: size})
		r.must(err)
		var all, rival sync.WaitGroup
		var over atomic.Bool
		rival.Go(func() {
			for !over.Load() { // never has room
				_, err := c.Reserve(t.Context(), client.Chain(chain(1<<21, window/size)), client.ReserveOptions{Size: size, AllOrNothing: true})
				if !errors.Is(err, client.ErrOverBudget) {
					t.Errorf("a reservation of the whole window: %v", err)
					return
				}
			}
		})
		for i := range uint64(writers) {
			all.Go(func() {
				w := client.NewWriter(c)
				var under []*client.Storing
				for n := range uint64(puts) {
					st, err := single{prompt: chain(1000*i+n, 1), size: size, value: byte(7*i + n)}.start(t.Context(), w, false)
					if err != nil {
						t.Errorf("put %d of writer %d: %v", n, i, err)
					}
					under = append(under, st)
				}
				for n, st := range under {
					if got := outcome(t.Context(), st, nil); got != client.ResultStored.String() {
						t.Errorf("put %d of writer %d: %s", n, i, got)
					}
				}
			})
		}
		all.Wait()
		over.Store(true)
		rival.Wait()
		r.must(held.Abort(t.Context()))
		for i := range uint64(writers) {
			for n := range uint64(puts) {
				sameBytes(t, c, c, single{prompt: chain(1000*i+n, 1), size: size, value: byte(7*i + n)})
			}
		}
		windowIsFree(t, c, window)
	})
}
