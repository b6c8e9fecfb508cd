package server_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/internal/server"
	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/tier/tiertest"
)

const leaseAge = 30 * time.Second

func TestLeaseExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, options{Options: server.Options{Settings: server.Settings{LeaseMaxAge: leaseAge}}})
		p := chain(1, 4)
		r.store(p, 0, 4)
		c := r.greet(wire.FeatureArena | wire.FeatureStaging | wire.FeaturePushes)
		told := func(n int) {
			t.Helper()
			if c.ping(); len(c.pushes) != n {
				t.Fatalf("%d pushes, want %d", len(c.pushes), n)
			}
		}
		free := func() bool { return r.leased() == 0 }
		m := c.prefetch(p)
		r.after(leaseAge, "the lease is revoked", free)
		told(1) // of the job, though it was done
		c.refused(wire.CodeRevoked, wire.OpRenew, &wire.IDRequest{ID: m.Job})
		var st wire.JobState
		c.do(wire.OpWait, &wire.WaitRequest{Job: m.Job, MinTokens: 1, Deadline: wire.Deadline{Given: true}}, &st)
		if !st.Done() || st.Code != wire.CodeRevoked || st.Refs.Len() != 0 || st.Ready.Chunks != 4 {
			t.Errorf("wait: %+v", st)
		}
		var out wire.ReleaseReply
		c.do(wire.OpRelease, &wire.IDRequest{ID: m.Job}, &out)
		if out.Code != wire.CodeRevoked {
			t.Error("released: ", out.Code)
		}
		c.refused(wire.CodeUnknownJob, wire.OpRelease, &wire.IDRequest{ID: m.Job})

		f := c.reserve(chain(2, 4))
		r.after(leaseAge, "the fill is revoked", free)
		if n := r.server.Stats().Revoked; n != 2 {
			t.Errorf("%d are revoked", n)
		}
		told(2)
		c.refused(wire.CodeRevoked, wire.OpCommit, &wire.FillRequest{Fill: f.Fill})
		c.refused(wire.CodeUnknownFill, wire.OpCommit, &wire.FillRequest{Fill: f.Fill})
		f = c.reserve(chain(2, 4))
		r.after(leaseAge, "the fill is revoked", free)
		c.refused(wire.CodeRevoked, wire.OpAbort, &wire.FillRequest{Fill: f.Fill})
		c.refused(wire.CodeUnknownFill, wire.OpAbort, &wire.FillRequest{Fill: f.Fill})
		told(3)
		for i, f := range c.pushes {
			var code wire.CodeReply
			switch {
			case i == 0 && (f.Op != wire.OpPrefetch || f.ID != m.Job || st.Decode(f.body) != nil || st.Code != wire.CodeRevoked):
				t.Errorf("pushed %+v: %+v", f.Header, st)
			case i > 0 && (f.Op != wire.OpReserve || code.Decode(f.body) != nil || code.Code != wire.CodeRevoked):
				t.Errorf("pushed %+v: %+v", f.Header, code)
			}
		}
	})
}

// A job that is revoked while it loads tells those who wait for pushes.
func TestRunningJobExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hook, open := gate()
		r := newRig(t, options{hook: hook, Options: server.Options{Settings: server.Settings{LeaseMaxAge: leaseAge}}})
		defer close(open)
		p := chain(1, 4)
		r.onDisk(p, 2, 4)
		r.store(p, 0, 2)
		c := r.greet(wire.FeatureArena | wire.FeaturePushes)
		m, begun := c.prefetch(p), time.Now()
		wait := c.send(wire.OpWait, &wire.WaitRequest{Job: m.Job, MinTokens: 4 * tokens, Deadline: wire.Deadline{Given: true, Millis: 1 << 30}})
		_, st := c.pushed()
		if !st.Done() || st.Code != wire.CodeRevoked || st.Ready.Chunks != 2 || st.Refs.Len() != 0 {
			t.Errorf("pushed: %+v", st)
		}
		if took := time.Since(begun); took != leaseAge {
			t.Errorf("it was revoked after %v", took)
		}
		if c.await(wait, &st); !st.Done() || st.Code != wire.CodeRevoked {
			t.Errorf("waited: %+v", st)
		}
		if r.leased() != 0 {
			t.Errorf("%d bytes are leased", r.leased())
		}
		var out wire.ReleaseReply
		c.do(wire.OpRelease, &wire.IDRequest{ID: m.Job}, &out)
		if out.Code != wire.CodeRevoked || out.State.Code != wire.CodeRevoked {
			t.Errorf("released: %+v", out)
		}
	})
}

// Renewing starts the age of a lease anew, up to the moment when it ends.
func TestRenew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, options{Options: server.Options{Settings: server.Settings{LeaseMaxAge: leaseAge}}})
		p := chain(1, 2)
		r.store(p, 0, 2)
		c := r.dial(client.Options{})
		j, err := c.Prefetch(t.Context(), client.Chain(p), client.PrefetchOptions{})
		r.must(err)
		for range 5 {
			time.Sleep(leaseAge - 1)
			left, err := j.Renew(t.Context())
			r.must(err)
			if left != leaseAge {
				t.Errorf("it holds for %v", left)
			}
		}
		b, err := j.Chunk(t.Context(), 1)
		r.must(err)
		r.must(tiertest.CheckPayload(p.Key(1), b))
		r.after(leaseAge, "the lease is revoked", func() bool { return r.leased() == 0 })
		if err := j.Release(t.Context()); !errors.Is(err, client.ErrRevoked) {
			t.Errorf("release: %v", err)
		}
	})
}

// Leases that expire at the very moment their clients commit, renew, release and
// leave are given back once, in any order of these.
func TestExpiryRaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, options{Options: server.Options{Settings: server.Settings{LeaseMaxAge: time.Millisecond, PinMaxAge: time.Millisecond}}})
		p := chain(1, 8)
		r.onDisk(p, 4, 8)
		r.store(p, 0, 4)
		for i := range 60 {
			c := r.greet(wire.FeatureArena | wire.FeatureStaging | wire.FeaturePushes)
			var jobs, fills []uint64
			for k := range 4 {
				jobs = append(jobs, c.prefetch(p).Job)
				fills = append(fills, c.reserve(chain(uint64(10+8*i+k), 2)).Fill)
				c.do(wire.OpPin, &wire.PinRequest{Chain: c.chain(p), LookupID: "x"}, &wire.PinReply{})
			}
			time.Sleep(time.Millisecond - time.Duration(i%4/3)) // mostly the moment when all of it expires
			for k := range 4 {
				c.take(c.send(wire.OpRenew, &wire.IDRequest{ID: jobs[k]}))
				if i%3 > 0 {
					c.send(wire.OpCommit, &wire.FillRequest{Fill: fills[k], Count: 1})
					c.send(wire.OpRelease, &wire.IDRequest{ID: jobs[k]})
					c.send(wire.OpPin, &wire.PinRequest{Chain: wire.Chain{Form: wire.FormNone}, LookupID: "x"})
				}
				if i%3 > 1 {
					c.take(c.send(wire.OpAbort, &wire.FillRequest{Fill: fills[k]}))
				}
			}
			c.nc.Close()
		}
		r.until("everybody has left", func() bool { return r.server.Stats().Connections == 0 })
		if r.leased() != 0 || r.pinned() != 0 {
			t.Errorf("%d bytes are leased, %d pinned", r.leased(), r.pinned())
		}
	})
}

// A connection that ends while its jobs load gives back its leases, at once, and
// the chunks still under way as they arrive.
func TestLeaveWhileLoading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hook, open := gate()
		r := newRig(t, options{hook: hook})
		p := chain(1, 16)
		r.onDisk(p, 2, 16)
		r.store(p, 0, 2)
		for i := range 20 {
			c := r.greet(wire.FeatureArena | wire.FeaturePushes)
			for range 8 {
				m := c.prefetch(p)
				c.send(wire.OpWait, &wire.WaitRequest{Job: m.Job, MinTokens: 1 << 40, Deadline: wire.Deadline{Given: true, Millis: 1 << 30}})
				c.send(wire.OpGet, &wire.GetRequest{Chain: refChain(m.Job)})
				c.send(wire.OpFlush, &wire.FlushRequest{})
			}
			if i == 10 {
				close(open) // from now on with loads that succeed
			}
			c.nc.Close()
		}
		r.until("everybody has left", func() bool { return r.server.Stats().Connections == 0 })
		if r.leased() != 0 {
			t.Errorf("%d bytes are leased", r.leased())
		}
	})
}

// A reserve that waits for room gets it when another client aborts its fill. The
// room of a reserve whose client has left meanwhile is free.
func TestReserveWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, options{capacity: 8 * size})
		wants := wire.FeatureArena | wire.FeatureStaging
		a, b, gone := r.greet(wants), r.greet(wants), r.greet(wants)
		f := a.reserve(chain(1, 8))
		if f.Slots.Len() != 8 {
			t.Fatalf("%d slots", f.Slots.Len())
		}
		ask := wire.ReserveRequest{Chain: b.chain(chain(2, 1)), Sizes: wire.ViewU32s([]uint32{size}), Deadline: wire.Within(20 * time.Second)}
		r.takes(20*time.Second, "a wait in vain", func() { b.refused(wire.CodeNoSpace, wire.OpReserve, &ask) })
		ask.Deadline.Millis = 1 << 30
		id := b.send(wire.OpReserve, &ask)
		b.ping()
		ask.Chain = gone.chain(chain(3, 1))
		gone.send(wire.OpReserve, &ask)
		gone.ping()
		gone.nc.Close()
		r.until("it has left", func() bool { return r.server.Stats().Connections == 2 })
		a.do(wire.OpAbort, &wire.FillRequest{Fill: f.Fill}, wire.EmptyReply{})
		var m wire.ReserveReply
		b.await(id, &m)
		if m.Slots.Len() != 1 || m.Fill == 0 {
			t.Errorf("%d slots of fill %d", m.Slots.Len(), m.Fill)
		}
		b.do(wire.OpCommit, &wire.FillRequest{Fill: m.Fill}, &wire.StoreReply{})
		if r.leased() != 0 {
			t.Errorf("%d bytes are leased", r.leased())
		}
	})
}

// A client that is late may still be writing when its fill is given up. What it
// writes must not get into another fill: its part of the window is not used
// until it has named the slots, each by itself.
func TestLateWritesReachNoOtherFill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, options{Options: server.Options{Settings: server.Settings{LeaseMaxAge: leaseAge}}})
		c := r.dial(client.Options{StagingBytes: 2 * size})
		late, err := c.Reserve(t.Context(), client.Chain(chain(1, 2)), client.ReserveOptions{Size: size})
		r.must(err)
		r.after(leaseAge, "the fill is revoked", func() bool { return r.server.Stats().Revoked == 1 })
		if f, err := c.Reserve(t.Context(), client.Chain(chain(2, 1)), client.ReserveOptions{Size: size}); err == nil && f.Len() > 0 {
			t.Error("a part of the window was granted that another client's thread may be writing")
		}
		refused := func(err error, want client.Code) {
			t.Helper()
			if !errors.Is(err, want) {
				t.Errorf("refused with %v, want %v", err, want)
			}
		}
		_, err = late.CommitRange(t.Context(), 0, 1, nil)
		refused(err, client.ErrRevoked)

		// Slot 0 is free now; slot 1 is still written to, while others are stored.
		p := chain(2, 1)
		f, err := c.Reserve(t.Context(), client.Chain(p), client.ReserveOptions{Size: size})
		r.must(err)
		if f.Len() != 1 || f.Status(0) != client.Granted {
			t.Fatalf("slot 0 was not given back: %v", f.Reason())
		}
		f.Write(0, tiertest.Payload(p.Key(0), size))
		clear(late.Bytes(1))
		_, err = f.Commit(t.Context())
		r.must(err)
		got, err := c.Get(t.Context(), client.Chain(p), client.GetOptions{})
		r.must(err)
		if len(got) != 1 || tiertest.CheckPayload(p.Key(0), got[0].Bytes) != nil {
			t.Error("a late write came into the payload of another fill")
		}

		refused(late.AbortRange(t.Context(), 1, 1), client.ErrRevoked)
		refused(late.AbortRange(t.Context(), 1, 1), client.ErrUnknownFill)
		f, err = c.Reserve(t.Context(), client.Chain(chain(3, 2)), client.ReserveOptions{Size: size})
		r.must(err)
		if f.Len() != 2 {
			t.Errorf("%d of 2 slots: the window is not free again: %v", f.Len(), f.Reason())
		}
		r.must(f.Abort(t.Context()))
	})
}
