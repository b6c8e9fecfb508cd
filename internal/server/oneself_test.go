package server_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/key"
)

// never is a deadline that no test waits for.
const never = 24 * time.Hour

// lease prefetches a prompt and waits, however long it takes, for the end of the
// job, which must not be its deadline.
func (r *rig) lease(c *client.Client, p *key.Chain) (*client.Job, client.State) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	defer cancel()
	j, err := c.Prefetch(ctx, client.Chain(p), client.PrefetchOptions{Policy: client.WaitComplete, Deadline: never})
	r.must(err)
	st, err := j.Wait(ctx, client.All)
	if err != nil {
		r.t.Fatalf("the job waits for room that only its client has: %v, %+v", err, st)
	}
	return j, st
}

// A job that has all that its client can get ends there and says so, also where
// the client has leased all of DRAM already. After a release the next job gets the
// room.
func TestJobsDoNotWaitForTheirClient(t *testing.T) {
	const room = mib / size // chunks that DRAM has room for
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, options{capacity: mib})
		long, other := chain(1, 2*room), chain(2, room/2)
		for from := 0; from < 2*room; from += room / 2 {
			r.onDisk(long, from, from+room/2)
		}
		r.onDisk(other, 0, room/2)
		c := r.dial(client.Options{})

		j, st := r.lease(c, long)
		if n := int(st.Ready.Chunks); !st.Done || st.Reason != client.StoppedOverBudget || n < room/2 || n > room {
			t.Errorf("a prompt of twice DRAM: %+v", st)
		}
		_, none := r.lease(c, other)
		if none.Reason != client.StoppedOverBudget || int(st.Ready.Chunks+none.Ready.Chunks) > room {
			t.Errorf("where all is leased by the client: %+v", none)
		}
		r.must(j.Release(t.Context()))

		_, st = r.lease(c, other)
		if int(st.Ready.Chunks) != room/2 || st.Reason != client.Complete {
			t.Errorf("after the release: %+v", st)
		}
		_, st = r.lease(c, long) // beside what the client has leased
		if n := int(st.Ready.Chunks); st.Reason != client.StoppedOverBudget || n == 0 || n > room/2 {
			t.Errorf("beside half of DRAM: %+v", st)
		}
	})
}

// A reserve with a wait ends at once where all of DRAM is the client's, and what
// is to be written does not help; it is no_space only after its time.
func TestReservesDoNotWaitForTheirClient(t *testing.T) {
	const room = mib / size
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, options{capacity: mib})
		mine, next := chain(1, room), chain(2, 2)
		r.onDisk(mine, 0, room/2)
		r.onDisk(mine, room/2, room)
		c := r.dial(client.Options{})
		j, st := r.lease(c, mine)
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		// What the watermark keeps free first.
		for i := 0; ; i++ {
			f, err := c.Reserve(ctx, client.Chain(chain(uint64(10+i), 1)), client.ReserveOptions{Size: size, Wait: never})
			if f != nil && f.Len() == 1 {
				continue
			}
			if err == nil && f.Reason() != client.StoppedOverBudget || err != nil && !errors.Is(err, client.ErrOverBudget) {
				t.Errorf("with %d chunks leased: %v", st.Ready.Chunks, err)
			}
			break
		}
		// Another client waits for this one, as long as it says.
		o := r.dial(client.Options{})
		var f *client.Fill
		var err error
		r.takes(20*time.Second, "a wait in vain", func() {
			f, err = o.Reserve(ctx, client.Chain(next), client.ReserveOptions{Size: size, Wait: 20 * time.Second})
		})
		if !errors.Is(err, client.ErrNoSpace) && (err != nil || f.Len() != 0 || f.Reason() != client.StoppedNoSpace) {
			t.Errorf("after its time another client has %v", err)
		}
		got := make(chan error, 1)
		go func() {
			f, err := o.Reserve(ctx, client.Chain(next), client.ReserveOptions{Size: size, Wait: never})
			if err == nil && f.Len() != 2 {
				err = errors.New(f.Reason().String())
			}
			got <- err
		}()
		r.until("it waits", func() bool { return r.hot.Ledger().Stats().Filling > 0 })
		r.must(j.Release(t.Context()))
		if err := <-got; err != nil {
			t.Errorf("woken by the release: %v", err)
		}
		if r.hot.Ledger().Stats().ClassBytes[ledger.Lease] == 0 {
			t.Error("nothing is filled")
		}
	})
}

// A prompt longer than DRAM, stored and read in pieces, makes room for itself:
// those that other clients use now and then stay while it is stored, and mostly
// while it is read: the use of what DRAM still has of it counts, at each piece.
func TestLongPromptsLeaveOthersAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const room = mib / size
		r := newRig(t, options{capacity: mib, limits: ledger.Limits{Lease: mib * 2 / 5, Load: mib / 5, Unwritten: mib / 5, Total: mib * 4 / 5}})
		c, o := r.dial(client.Options{}), r.dial(client.Options{})
		others := []*key.Chain{chain(1, 2), chain(2, 1), chain(3, 3)}
		for _, p := range others {
			r.store(p, 0, p.Len())
		}
		r.must(r.tiers.Writers.Flush(t.Context(), false))
		left := 0
		use := func() { // the others, and count how often one was not there
			for _, p := range others {
				if !r.hot.Has(p.Key(0)) {
					left++
				}
				j, st := r.lease(o, p)
				if int(st.Ready.Chunks) != p.Len() {
					t.Fatalf("%+v", st)
				}
				r.must(j.Release(t.Context()))
			}
		}
		long := chain(9, 4*room)
		for first := 0; first < long.Len(); first += room / 4 {
			o := client.ReserveOptions{First: first, Count: room / 4, Size: size, Wait: never}
			_, err := c.Store(t.Context(), client.Chain(long), o, nil, func(i int, dst []byte) error { return nil })
			r.must(err)
			r.must(r.tiers.Writers.Flush(t.Context(), false)) // or what DRAM has is to be lost
			use()
		}
		if left > 0 {
			t.Errorf("while it was stored others had left DRAM %d times", left)
		}
		for range 2 {
			left = 0
			pieces := 0
			for p, n := client.Chain(long), 0; n < long.Len(); p.SkipChunks = n {
				j, err := c.Prefetch(t.Context(), p, client.PrefetchOptions{Policy: client.WaitComplete})
				r.must(err)
				st, err := j.Wait(t.Context(), client.All)
				r.must(err)
				if n += int(st.Ready.Chunks); st.Ready.Chunks == 0 {
					t.Fatalf("from chunk %d on: %+v", n, st)
				}
				r.must(j.Release(t.Context()))
				use()
				pieces++
			}
			if left > pieces { // of three times as often as they were used
				t.Errorf("while it was read in %d pieces others had left DRAM %d times", pieces, left)
			}
		}
	})
}
