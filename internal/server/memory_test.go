package server_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/kvstored/kvstored/internal/budget"
	"github.com/kvstored/kvstored/internal/server"
	"github.com/kvstored/kvstored/internal/wire"
)

// checkMemory tries clients that cost memory, one a call, while the budget is
// looked at. It must hold at every moment, some of them must lose their
// connections, a client that costs little must not, and nothing is charged when
// all have gone.
func checkMemory(t *testing.T, r *rig, b *budget.Budget, clients int, cost func(c *raw)) {
	t.Helper()
	quiet := r.greet(0)
	quiet.ping()
	for range clients {
		c := r.greet(0)
		r.must(c.conn.SetWriteDeadline(time.Now().Add(patience)))
		cost(c)
		if st := b.Stats(); st.UsedBytes > st.LimitBytes {
			t.Fatalf("%d bytes are charged, the limit is %d", st.UsedBytes, st.LimitBytes)
		}
	}
	r.until("a client loses its connection for its memory", func() bool {
		n := b.Stats().Closed["native"]
		return n["memory"]+n["uid_memory"] > 0
	})
	quiet.ping()
	r.stop()
	if st := b.Stats(); st.UsedBytes != st.SocketBytes { // what clients that are still there have not read
		t.Errorf("%d bytes are charged for nothing", st.UsedBytes-st.SocketBytes)
	}
}

func newMemoryRig(t *testing.T, limit int64, stall time.Duration) (*rig, *budget.Budget) {
	b := budget.New(budget.Options{Bytes: limit})
	return newRig(t, options{Options: server.Options{Memory: b, Limits: server.Limits{StallTimeout: stall}}}), b
}

// Clients that begin frames and do not go on.
func TestHalfFrames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, b := newMemoryRig(t, 16*mib, time.Hour)
		half := append(wire.Header{BodyBytes: wire.MaxBodyBytes, Op: wire.OpPut, ID: 1}.Append(nil), make([]byte, 5*mib)...)
		checkMemory(t, r, b, 8, func(c *raw) {
			_, _ = c.conn.Write(half) // it may be closed already
		})
	})
}

// Clients that ask for copies and read none.
func TestDeafGets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, b := newMemoryRig(t, 16*mib, time.Hour)
		p := chain(1, 128)
		r.store(p, 0, 128) // 2 MiB
		checkMemory(t, r, b, 8, func(c *raw) {
			for id := range uint64(4) {
				ask := wire.AppendRequest(nil, wire.OpGet, id, &wire.GetRequest{Chain: c.chain(p)})
				if _, err := c.conn.Write(ask); err != nil {
					break
				}
			}
		})
	})
}

// A get that is refused because too many requests wait already charges nothing for
// the copies that it had begun.
func TestRefusedGetsCostNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hook, open := gate()
		b := budget.New(budget.Options{Bytes: 64 * mib})
		r := newRig(t, options{hook: hook, Options: server.Options{Memory: b}})
		defer close(open)
		p := chain(1, 8)
		r.onDisk(p, 4, 8)
		r.store(p, 0, 4)
		c := r.greet(0)
		job := c.prefetch(p).Job
		for range 1024 {
			c.send(wire.OpWait, &wire.WaitRequest{Job: job, MinTokens: 1 << 40, Deadline: wire.Deadline{Given: true, Millis: 1 << 30}})
		}
		refuse := func() int64 {
			c.refused(wire.CodeOverBudget, wire.OpGet, &wire.GetRequest{Chain: refChain(job)})
			return b.Stats().UsedBytes
		}
		first := refuse()
		for range 64 {
			if used := refuse(); used > first {
				t.Fatalf("%d bytes are charged, after the first of these requests %d were", used, first)
			}
		}
	})
}

// Clients that begin jobs and end none.
func TestManyJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, b := newMemoryRig(t, 16*mib, time.Hour)
		p := chain(1, 4096)
		checkMemory(t, r, b, 2, func(c *raw) {
			for id := range uint64(60) {
				ask := wire.AppendRequest(nil, wire.OpPrefetch, id, &wire.PrefetchRequest{Chain: c.chain(p)})
				if _, err := c.conn.Write(ask); err != nil {
					break
				}
			}
		})
	})
}

// A frame that has begun and does not go on ends its connection, which is told
// why; one that is idle between frames keeps it.
func TestStalledFrame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, b := newMemoryRig(t, 16*mib, 100*time.Millisecond)
		idle, stalled := r.greet(0), r.greet(0)
		half := append(wire.Header{BodyBytes: mib, Op: wire.OpPut, ID: 7}.Append(nil), make([]byte, 100)...)
		stalled.write(half)
		f, err := stalled.read()
		if err != nil || f.Code != wire.CodeTimeout || f.ID != 7 {
			t.Errorf("%+v, %v", f, err)
		}
		stalled.ended()
		if n := b.Stats().Closed["native"]["stalled"]; n != 1 {
			t.Errorf("%d are counted", n)
		}
		idle.ping()
	})
}
