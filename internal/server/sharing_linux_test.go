package server_test

import (
	"bytes"
	"testing"
	"testing/synctest"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/internal/server"
	"github.com/kvstored/kvstored/internal/wire"
)

// TestSlotSizes: a payload has at least one byte, in each tier, and fits into the window.
func TestSlotSizes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, options{})
		c := r.greet(staged)
		zero, some := wire.ViewU32s([]uint32{0}), wire.ViewU32s([]uint32{size, 0})
		c.refused(wire.CodeBadRequest, wire.OpReserve, &wire.ReserveRequest{Chain: c.chain(chain(1, 1)), Sizes: zero})
		c.refused(wire.CodeBadRequest, wire.OpReserve, &wire.ReserveRequest{Chain: c.chain(chain(1, 2)), Sizes: some})
		c.refused(wire.CodeBadRequest, wire.OpPut, &wire.PutRequest{Chain: c.chain(chain(1, 1)), Sizes: zero})
		small := r.connect()
		small.say(&wire.HelloRequest{Wants: staged, StagingBytes: size})
		small.refused(wire.CodeTooLarge, wire.OpReserve, &wire.ReserveRequest{Chain: small.chain(chain(1, 1)), Sizes: wire.ViewU32s([]uint32{size + 1})})
		if r.leased() != 0 {
			t.Errorf("%d bytes are held", r.leased())
		}
	})
}

// connectAs is connect as another user.
func (r *rig) connectAs(uid uint32) *raw {
	r.t.Helper()
	nc, err := r.local.DialAs(r.t.Context(), uid)
	r.must(err)
	return newRaw(r.t, nc)
}

// TestSharingEndsAtTheUser: what one user shares another does not find, whatever it does
// with the number.
func TestSharingEndsAtTheUser(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, options{Options: server.Options{Settings: server.Settings{Access: accepted(t, allButMap)}}})
		p := chain(1, 2)
		r.store(p, 0, 2)
		a, again, b := r.connectAs(alice), r.connectAs(alice), r.connectAs(bob)
		for _, c := range []*raw{a, again, b} {
			c.say(&wire.HelloRequest{Wants: staged})
		}
		var job wire.PrefetchReply
		a.do(wire.OpPrefetch, &wire.PrefetchRequest{Chain: a.chain(p), Flags: wire.PrefetchShared}, &job)
		b.refused(wire.CodeUnknownJob, wire.OpWait, &wire.WaitRequest{Job: job.Job})
		b.refused(wire.CodeUnknownJob, wire.OpRelease, &wire.IDRequest{ID: job.Job})
		fill := a.reserve(chain(2, 1)).Fill
		for _, id := range []uint64{job.Job, fill} {
			b.refused(wire.CodeUnknownJob, wire.OpRenew, &wire.IDRequest{ID: id})
			b.refused(wire.CodeUnknownJob, wire.OpGet, &wire.GetRequest{Chain: refChain(id)})
			b.refused(wire.CodeUnknownJob, wire.OpLookup, &wire.LookupRequest{Chain: refChain(id)})
			b.refused(wire.CodeUnknownJob, wire.OpDelete, &wire.DeleteRequest{Chain: refChain(id)})
			b.refused(wire.CodeUnknownFill, wire.OpCommit, &wire.FillRequest{Fill: id})
			b.refused(wire.CodeUnknownFill, wire.OpAbort, &wire.FillRequest{Fill: id})
		}
		var st wire.JobState
		again.do(wire.OpWait, &wire.WaitRequest{Job: job.Job}, &st)                       // its own user's
		again.refused(wire.CodeUnknownFill, wire.OpCommit, &wire.FillRequest{Fill: fill}) // a fill is its connection's
	})
}

// TestWriterStoresAgain: a chunk that a Writer stores twice in a row, whose first commit
// is not sent yet, is there, not pending.
func TestWriterStoresAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, options{})
		c := r.dial(client.Options{})
		w := client.NewWriter(c)
		payload := bytes.Repeat([]byte{7}, size)
		var under []*client.Storing
		for n := 1; n <= 3; n++ { // longer by a chunk each time
			s, err := w.Put(t.Context(), client.Chain(chain(1, n)), client.ReserveOptions{Count: n, Size: size}, func(_ int, dst []byte) error {
				client.CopyTo(dst, payload)
				return nil
			})
			r.must(err)
			under = append(under, s)
		}
		for n, s := range under {
			results, err := s.Wait(t.Context())
			r.must(err)
			for i, got := range results {
				want := client.ResultExists
				if i == n {
					want = client.ResultStored
				}
				if got.Code != want {
					t.Errorf("Put %d, chunk %d: %s, want %s", n, i, got.Code, want)
				}
			}
			if len(results) != n+1 {
				t.Errorf("Put %d: %d results", n, len(results))
			}
		}
		r.until("nothing is held", func() bool { return r.leased() == 0 })
	})
}
