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

// TestKeptPrompts: a kept prompt means the same in each call, whatever others were kept
// meanwhile.
func TestKeptPrompts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, options{})
		c := r.dial(client.Options{})
		var prompts []client.Prompt
		for i := range 2*wire.KeptChains + 1 {
			p := chain(uint64(i+1), 3)
			r.store(p, 0, i%4)
			prompts = append(prompts, client.Chain(p).Kept())
		}
		for range 2 {
			for i, p := range prompts {
				want := i % 4
				m, err := c.Lookup(t.Context(), p, 0)
				if r.must(err); int(m.Total.Chunks) != want {
					t.Errorf("prompt %d: %d chunks, want %d", i, m.Total.Chunks, want)
				}
				j, err := c.Prefetch(t.Context(), p, client.PrefetchOptions{})
				r.must(err)
				if n, _ := j.Ready(); n != want {
					t.Errorf("prompt %d: %d chunks are ready, want %d", i, n, want)
				}
				r.must(j.Release(t.Context()))
				p.SkipChunks = 1
				got, err := c.Get(t.Context(), p, client.GetOptions{})
				if r.must(err); len(got) != max(0, want-1) {
					t.Errorf("prompt %d: %d chunks behind the first, want %d", i, len(got), max(0, want-1))
				}
				f, err := c.Reserve(t.Context(), p, client.ReserveOptions{Size: size})
				r.must(err)
				for k := range f.Len() {
					if exists := f.Status(k) == client.Exists; exists != (k+1 < want) {
						t.Errorf("prompt %d, chunk %d: %s", i, k+1, f.Status(k))
					}
				}
				r.must(f.Abort(t.Context()))
			}
		}
	})
}
