package server_test

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"flag"
	"io"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kvstored/kvstored/internal/server"
	"github.com/kvstored/kvstored/internal/wire"
)

var fenceTries = flag.Int("fence-tries", 300, "how often a lookup follows a delete")

// inAges is a deadline that no test lives to see.
var inAges = wire.Deadline{Given: true, Millis: 1 << 31}

// TestCancel: a request that waits is answered cancelled, long before its deadline, and
// its id is free again.
func TestCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hook, open := gate()
		r := newRig(t, options{hook: hook, capacity: 8 * size})
		defer close(open)
		p := chain(1, 2)
		r.onDisk(p, 0, 2)
		full := r.greet(staged)
		full.reserve(chain(9, 8))
		c := r.greet(staged)
		j := c.prefetch(p)
		for name, ask := range map[string]struct {
			op wire.Op
			m  wire.Message
		}{
			"wait":         {wire.OpWait, &wire.WaitRequest{Job: j.Job, MinTokens: 1, Deadline: inAges}},
			"wait for all": {wire.OpWait, &wire.WaitRequest{Job: j.Job, MinTokens: 1 << 40}},
			"get":          {wire.OpGet, &wire.GetRequest{Chain: c.chain(p), Deadline: inAges}},
			"reserve":      {wire.OpReserve, &wire.ReserveRequest{Chain: c.chain(chain(5, 1)), Sizes: wire.ViewU32s([]uint32{size}), Deadline: inAges}},
			"warm":         {wire.OpWarm, &wire.WarmRequest{Chain: c.chain(p), Deadline: inAges}},
		} {
			part(t, name, func(t *testing.T) {
				c.t = t
				id := c.send(ask.op, ask.m)
				c.ping() // it waits
				var m wire.CodeReply
				if c.do(wire.OpCancel, &wire.IDRequest{ID: id}, &m); m.Code != wire.CodeOK {
					t.Fatalf("cancel: %s", m.Code)
				}
				if f := c.take(id); f.Code != wire.CodeCancelled {
					t.Errorf("answered %s %q", f.Code, text(f))
				}
				if c.do(wire.OpCancel, &wire.IDRequest{ID: id}, &m); m.Code != wire.CodeNotFound {
					t.Errorf("cancelled twice: %s", m.Code)
				}
			})
		}
		c.t = t
		var out wire.ReleaseReply
		if c.do(wire.OpRelease, &wire.IDRequest{ID: j.Job}, &out); out.Code != wire.CodeOK {
			t.Errorf("the job of a wait that was cancelled: %s", out.Code)
		}
	})
}

// TestIDsInUse: the id of a request that waits is refused for another.
func TestIDsInUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hook, open := gate()
		r := newRig(t, options{hook: hook})
		p := chain(1, 2)
		r.onDisk(p, 0, 2)
		c := r.greet(0)
		c.next = 50
		get := wire.AppendRequest(nil, wire.OpGet, 7, &wire.GetRequest{Chain: c.chain(p), Deadline: inAges})
		c.write(append(get, get...))
		if f := c.take(7); f.Code != wire.CodeBadRequest {
			t.Errorf("the second: %s", f.Code)
		}
		close(open)
		c.await(7, &wire.GetReply{})
	})
}

// TestDeleteIsAFence: a lookup pipelined behind a delete never finds what that
// names, in DRAM, on disk, or on its way there.
func TestDeleteIsAFence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, options{capacity: 64 * size})
		c, other := r.greet(staged), r.greet(0)
		p := chain(1, 4)
		for i := range *fenceTries {
			if i%2 == 0 {
				r.store(p, 0, 4)
			} else {
				r.onDisk(p, 0, 4)
			}
			c.next += 3
			frames := wire.AppendRequest(nil, wire.OpDelete, c.next, &wire.DeleteRequest{Chain: c.chain(p)})
			frames = wire.AppendRequest(frames, wire.OpLookup, c.next+1, &wire.LookupRequest{Chain: c.chain(p)})
			frames = wire.AppendRequest(frames, wire.OpPrefetch, c.next+2, &wire.PrefetchRequest{Chain: c.chain(p)})
			c.write(frames)
			var look wire.LookupReply
			var job wire.PrefetchReply
			var gone wire.DeleteReply
			c.await(c.next+1, &look)
			c.await(c.next+2, &job)
			c.await(c.next, &gone)
			c.next += 3
			if look.Match.Total.Chunks != 0 || job.Match.Total.Chunks != 0 || gone.Chunks != 4 {
				t.Fatalf("try %d: %d chunks found, %d prefetched, %d deleted", i, look.Match.Total.Chunks, job.Match.Total.Chunks, gone.Chunks)
			}
			c.do(wire.OpRelease, &wire.IDRequest{ID: job.Job}, &wire.ReleaseReply{})
			if other.do(wire.OpLookup, &wire.LookupRequest{Chain: other.chain(p)}, &look); look.Match.Total.Chunks != 0 {
				t.Fatalf("try %d: another connection finds %d chunks after the delete", i, look.Match.Total.Chunks)
			}
		}
	})
}

// TestKeptChains: a client of before, which would have its chain kept, is told that nothing
// is: the limits say so, and a number without its chain is refused.
func TestKeptChains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, options{})
		r.store(chain(1, 4), 0, 4)
		c := r.greet(staged)
		if l := c.hello.Limits; l.KeptChains != 0 || l.KeptChunks != 0 {
			t.Errorf("%d chains of %d chunks are kept", l.KeptChains, l.KeptChunks)
		}
		ch := c.chain(chain(1, 6))
		ch.ID = 7
		var m wire.LookupReply
		if c.do(wire.OpLookup, &wire.LookupRequest{Chain: ch}, &m); m.Match.Total.Chunks != 4 {
			t.Errorf("%d chunks", m.Match.Total.Chunks)
		}
		c.refused(wire.CodeUnknownChain, wire.OpLookup, &wire.LookupRequest{Chain: wire.Chain{Form: wire.FormKept, ID: 7}})
	})
}

// TestSharedLease: a job that is shared can be waited for, renewed, read and released
// on another connection of its user.
func TestSharedLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, options{})
		p := chain(1, 4)
		r.store(p, 0, 4)
		a, b := r.greet(wire.FeatureArena), r.greet(wire.FeatureArena)
		var m wire.PrefetchReply
		ask := wire.PrefetchRequest{Chain: a.chain(p), Flags: wire.PrefetchShared}
		a.do(wire.OpPrefetch, &ask, &m)
		var st wire.JobState
		if b.do(wire.OpWait, &wire.WaitRequest{Job: m.Job}, &st); st.Refs.Len() != 4 || st.Code != wire.CodeOK {
			t.Errorf("wait: %+v", st)
		}
		var got wire.GetReply
		if b.do(wire.OpGet, &wire.GetRequest{Chain: refChain(m.Job)}, &got); got.Chunks.Len() != 4 {
			t.Errorf("%d chunks", got.Chunks.Len())
		}
		b.do(wire.OpRenew, &wire.IDRequest{ID: m.Job}, &wire.RenewReply{})
		var out wire.ReleaseReply
		if b.do(wire.OpRelease, &wire.IDRequest{ID: m.Job}, &out); out.Code != wire.CodeOK {
			t.Errorf("released: %s", out.Code)
		}
		a.refused(wire.CodeUnknownJob, wire.OpRelease, &wire.IDRequest{ID: m.Job})
		if r.leased() != 0 {
			t.Errorf("%d bytes are leased", r.leased())
		}
		a.do(wire.OpPrefetch, &ask, &m)
		a.nc.Close()
		r.until("the lease has ended with its connection", func() bool { return r.leased() == 0 })
		b.refused(wire.CodeUnknownJob, wire.OpRenew, &wire.IDRequest{ID: m.Job})
	})
}

// TestFillIsRenewed: a fill that is renewed, up to the moment when it would end, goes on.
func TestFillIsRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, options{Options: server.Options{Settings: server.Settings{LeaseMaxAge: leaseAge}}})
		c := r.greet(staged)
		f := c.reserve(chain(1, 1))
		for range 3 {
			time.Sleep(leaseAge - 1)
			c.do(wire.OpRenew, &wire.IDRequest{ID: f.Fill}, &wire.RenewReply{})
		}
		time.Sleep(leaseAge - 1)
		var m wire.StoreReply
		if c.do(wire.OpCommit, &wire.FillRequest{Fill: f.Fill}, &m); m.Results.At(0).Code != wire.CodeOK {
			t.Errorf("%s", m.Results.At(0).Code)
		}
		c.refused(wire.CodeUnknownJob, wire.OpRenew, &wire.IDRequest{ID: f.Fill})
	})
}

// TestNoEvict: a reservation that must not evict takes free room only.
func TestNoEvict(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, options{capacity: 8 * size})
		c := r.greet(staged)
		r.store(chain(1, 6), 0, 6)
		r.until("the one that stored has left", func() bool { return r.server.Stats().Connections == 1 })
		ask := wire.ReserveRequest{Chain: c.chain(chain(2, 4)), Sizes: wire.ViewU32s([]uint32{size}), Flags: wire.ReserveNoEvict}
		var m wire.ReserveReply
		if c.do(wire.OpReserve, &ask, &m); m.Slots.Len() != 2 || m.Code != wire.CodeNoSpace {
			t.Errorf("%d slots, %s", m.Slots.Len(), m.Code)
		}
		var look wire.LookupReply
		if c.do(wire.OpLookup, &wire.LookupRequest{Chain: c.chain(chain(1, 6))}, &look); look.Match.Total.Chunks != 6 {
			t.Errorf("%d chunks are left of 6", look.Match.Total.Chunks)
		}
		c.do(wire.OpAbort, &wire.FillRequest{Fill: m.Fill}, wire.EmptyReply{})
		ask.Flags = 0
		r.until("four slots with eviction, once what the other protected is let go", func() bool {
			c.do(wire.OpReserve, &ask, &m)
			if m.Slots.Len() == 4 {
				return true
			}
			c.do(wire.OpAbort, &wire.FillRequest{Fill: m.Fill}, wire.EmptyReply{})
			return false
		})
	})
}

// TestHelloAgrees: absurd sizes are brought into the limits, and told.
func TestHelloAgrees(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, options{})
		for name, tc := range map[string]struct {
			asked        wire.HelloRequest
			request, rep uint32
			credit       uint64
		}{
			"nothing": {wire.HelloRequest{}, wire.MaxBodyBytes, wire.MaxBodyBytes, wire.MaxBodyBytes},
			"little":  {wire.HelloRequest{MaxRequest: 1, MaxReply: 1, Credit: 1}, wire.LeastBodyBytes, wire.LeastBodyBytes, wire.LeastBodyBytes},
			"all":     {wire.HelloRequest{MaxRequest: 1<<32 - 1, MaxReply: 1<<32 - 1, Credit: 1<<64 - 1}, wire.MaxBodyBytes, wire.MaxBodyBytes, 2 * wire.MaxBodyBytes},
		} {
			c := r.connect()
			c.t = t
			c.say(&tc.asked)
			if h := &c.hello; h.MaxRequest != tc.request || h.MaxReply != tc.rep || h.Credit != tc.credit || h.Limits.Jobs != 1024 || h.Limits.LeaseMillis == 0 {
				t.Errorf("%s: %+v", name, h)
			}
		}
		c := r.connect()
		c.say(&wire.HelloRequest{MaxRequest: 1})
		c.write(wire.Header{BodyBytes: wire.LeastBodyBytes + 8, Op: wire.OpPing, ID: 9}.Append(nil))
		if f, err := c.read(); err != nil || f.Code != wire.CodeTooLarge {
			t.Errorf("a larger request: %s, %v", f.Code, err)
		}
		c.ended()
	})
}

// TestVersion1: a client of version 1 reads in its own format that there is no common
// version.
func TestVersion1(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, options{})
		for _, name := range []string{"version_1_request", "version_1_python_request"} {
			hello := recorded(t, name)
			c := r.connect()
			c.write(hello)
			answer, err := io.ReadAll(c.nc)
			r.must(err)
			h, body := wire.DecodeHeader(answer), answer[wire.HeaderBytes:]
			if h.Code != wire.CodeVersion || h.Kind != wire.KindReply || h.ID != wire.DecodeHeader(hello).ID || int(h.BodyBytes) != len(body) {
				t.Fatalf("%s: %+v, %d bytes", name, h, len(body))
			}
			if n := int(binary.LittleEndian.Uint16(body)); n != len(body)-2 || !bytes.Contains(body, []byte("versions 1 to 1, the daemon 2; update the older one")) {
				t.Errorf("%s: %q", name, body)
			}
		}
	})
}

// recorded is a frame of testdata/wire.
func recorded(t *testing.T, name string) (frame []byte) {
	t.Helper()
	text, err := os.ReadFile("../../testdata/wire/" + name + ".hex")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		digits, _, _ := strings.Cut(line, "#")
		part, err := hex.DecodeString(strings.ReplaceAll(strings.TrimSpace(digits), " ", ""))
		if err != nil {
			t.Fatal(err)
		}
		frame = append(frame, part...)
	}
	return frame
}
