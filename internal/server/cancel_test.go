package server

import (
	"context"
	"errors"
	"math"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kvstored/kvstored/internal/budget"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/internal/store"
	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
	"github.com/kvstored/kvstored/tier/tierfault"
	"github.com/kvstored/kvstored/tier/tiertest"
)

// never is a deadline of many days.
var never = wire.Deadline{Given: true, Millis: math.MaxUint32}

// cancelCase is a request that waits for something that does not come.
type cancelCase struct {
	name string
	do   string // of the script, for the only chunk
	hang tierfault.Op
	find error
	ask  func(g *stage) (wire.Op, wire.Message)
}

var cancelCases = []cancelCase{
	{"wait, for a load that ends with its context", "h", "", nil, func(g *stage) (wire.Op, wire.Message) {
		j := g.prefetch(&wire.PrefetchRequest{Policy: wire.PolicyWaitComplete})
		return wire.OpWait, &wire.WaitRequest{Job: j.id, MinTokens: 1, Deadline: never}
	}},
	{"wait without a deadline", "g", "", nil, func(g *stage) (wire.Op, wire.Message) {
		j := g.prefetch(&wire.PrefetchRequest{Policy: wire.PolicyWaitComplete})
		return wire.OpWait, &wire.WaitRequest{Job: j.id, MinTokens: math.MaxUint64}
	}},
	{"wait for a job that another connection shares", "g", "", nil, func(g *stage) (wire.Op, wire.Message) {
		own, peer := g.reader, g.peer
		g.reader = g.connect(own.server)
		j := g.prefetch(&wire.PrefetchRequest{Policy: wire.PolicyWaitComplete, Flags: wire.PrefetchShared})
		g.others, g.reader, g.peer = append(g.others, g.reader), own, peer
		return wire.OpWait, &wire.WaitRequest{Job: j.id, MinTokens: 1, Deadline: never}
	}},
	{"get, of a load that ends with its context", "h", "", nil, func(g *stage) (wire.Op, wire.Message) {
		return wire.OpGet, &wire.GetRequest{Chain: g.spec(), Deadline: never}
	}},
	{"get, of a load that does not end", "g", "", nil, func(g *stage) (wire.Op, wire.Message) {
		return wire.OpGet, &wire.GetRequest{Chain: g.spec(), Deadline: never}
	}},
	{"get without a deadline", "g", "", nil, func(g *stage) (wire.Op, wire.Message) {
		return wire.OpGet, &wire.GetRequest{Chain: g.spec()}
	}},
	{"get, of what the remote tier may have", "", "", errFindHangs, func(g *stage) (wire.Op, wire.Message) {
		return wire.OpGet, &wire.GetRequest{Chain: g.spec(), Deadline: never}
	}},
	{"get, for room to copy to", "", "", nil, func(g *stage) (wire.Op, wire.Message) {
		if !g.session.inline.TryAcquire(maxInline) {
			g.t.Fatal("there is no room before")
		}
		g.after = append(g.after, func() { g.session.inline.Release(maxInline) })
		return wire.OpGet, &wire.GetRequest{Chain: g.spec(), Deadline: never}
	}},
	{"reserve", "", "", nil, func(g *stage) (wire.Op, wire.Message) {
		g.hoard()
		g.window()
		ch := g.spec()
		ch.Hashes = []byte("a key of its own")
		return wire.OpReserve, &wire.ReserveRequest{Chain: ch, Sizes: wire.ViewU32s([]uint32{scriptSize}), Deadline: never}
	}},
	{"warm", "h", "", nil, func(g *stage) (wire.Op, wire.Message) {
		return wire.OpWarm, &wire.WarmRequest{Chain: g.spec(), Deadline: never}
	}},
	{"flush", "", tierfault.Put, nil, func(g *stage) (wire.Op, wire.Message) {
		g.dirty()
		return wire.OpFlush, &wire.FlushRequest{Deadline: never}
	}},
	{"flush without a deadline", "", tierfault.Put, nil, func(g *stage) (wire.Op, wire.Message) {
		g.dirty()
		return wire.OpFlush, &wire.FlushRequest{Durable: true}
	}},
	{"wait for a job of groups", "g", "", nil, func(g *stage) (wire.Op, wire.Message) {
		j := g.prefetch(&wire.PrefetchRequest{Policy: wire.PolicyWaitComplete, Shared: wire.Shared{Groups: g.groups()}})
		return wire.OpWait, &wire.WaitRequest{Job: j.id, MinTokens: 1, Deadline: never}
	}},
	{"get, of what a job still loads", "g", "", nil, func(g *stage) (wire.Op, wire.Message) {
		j := g.prefetch(&wire.PrefetchRequest{Policy: wire.PolicyWaitComplete})
		return wire.OpGet, &wire.GetRequest{Chain: wire.Chain{Form: wire.FormRef, ID: j.id}, Deadline: never}
	}},
	{"reserve with groups", "", "", nil, func(g *stage) (wire.Op, wire.Message) {
		g.hoard()
		g.window()
		ch := g.spec()
		ch.Hashes = []byte("a key of its own")
		return wire.OpReserve, &wire.ReserveRequest{Chain: ch, Sizes: wire.ViewU32s([]uint32{scriptSize}), Groups: g.groups(), Deadline: never}
	}},
	{"events", "", "", nil, func(*stage) (wire.Op, wire.Message) {
		return wire.OpEvents, &wire.EventsRequest{From: wire.EventsNow, Deadline: never}
	}},
	{"events without a deadline", "", "", nil, func(*stage) (wire.Op, wire.Message) {
		return wire.OpEvents, &wire.EventsRequest{From: wire.EventsNow}
	}},
	{"events, for a snapshot behind others", "", "", nil, func(g *stage) (wire.Op, wire.Message) {
		for range maxSnapshots {
			g.server.snapshots <- struct{}{}
			g.after = append(g.after, func() { <-g.server.snapshots })
		}
		return wire.OpEvents, &wire.EventsRequest{Snapshot: true, Deadline: never}
	}},
	{"delete", "", tierfault.Delete, nil, func(g *stage) (wire.Op, wire.Message) {
		return wire.OpDelete, &wire.DeleteRequest{Chain: g.spec(), Deadline: never}
	}},
	{"delete of a space", "", tierfault.Delete, nil, func(g *stage) (wire.Op, wire.Message) {
		return wire.OpDelete, &wire.DeleteRequest{Chain: wire.Chain{Space: g.space, Form: wire.FormNone}}
	}},
}

// groups are those of a model that has the full one only.
func (g *stage) groups() wire.Groups { return wire.Groups(nil).Add(wire.Group{Space: g.space}) }

// window gives the connection a staging window.
func (g *stage) window() {
	st, err := newStaging(1<<20, false, &g.server.count.staging, g.session.whileOpen)
	g.must(err)
	g.session.staging, g.session.puts = st, wire.PutStaged
}

// hoard takes all room of DRAM for another client, until the play is over.
func (g *stage) hoard() {
	st := g.server.o.Store
	owner, n := st.Leases.NewOwner(), 4<<20/scriptSize
	c := tiertest.Chain(99, n)
	c.Space = g.chain.Space
	sizes, grants := make([]uint32, n), make([]store.Grant, n)
	for i := range sizes {
		sizes[i] = scriptSize
	}
	had, err := st.Filler.Reserve(context.Background(), store.Reservation{Owner: owner}, c, 0, sizes, grants)
	if had == 0 {
		g.t.Fatal(err)
	}
	g.after = append(g.after, func() {
		abortGrants(st, grants[:had])
		st.Leases.CloseOwner(owner)
	})
}

// dirty stores the chunk, which is not written below yet.
func (g *stage) dirty() {
	var grant [1]store.Grant
	_, err := g.server.o.Store.Filler.Reserve(context.Background(), store.Reservation{Owner: ledger.Daemon}, g.chain, 0, []uint32{scriptSize}, grant[:])
	g.must(err)
	grant[0].Ref.Block.Seal()
	g.server.o.Store.Filler.Commit(g.chain, 0, []tier.Ref{grant[0].Ref}, 0, make([]bool, 1))
}

// scanned waits until the tiers below are, which have no fault yet: a deletion of a space
// is refused before.
func (g *stage) scanned() {
	for {
		d := g.server.o.Store.Remover.ForgetSpace(key.SpaceID{1})
		_, err := d.Delete(context.Background())
		d.End()
		if !errors.Is(err, tier.ErrOff) {
			g.must(err)
			return
		}
		runtime.Gosched() // the tiers in memory take no time
	}
}

// TestCancelInNoTime: a request that waits ends when its client cancels it, without
// its deadline or the event that it waits for, and holds nothing any more.
func TestCancelInNoTime(t *testing.T) {
	for _, tt := range cancelCases {
		s := script{at: "d", do: tt.do, memory: budget.New(budget.Options{Bytes: 256 << 20}), find: tt.find}
		if tt.find != nil || tt.hang == tierfault.Put {
			s.at = "."
		}
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				hold := make(chan struct{}) // that of a bubble must be made in it
				s.gate = hold
				var filled atomic.Bool
				s.fault = func(c tierfault.Call) (tierfault.Fault, bool) {
					return tierfault.Fault{Until: hold}, filled.Load() && c.Op == tt.hang
				}
				g := newStage(t, &s)
				g.scanned()
				filled.Store(true)
				op, m := tt.ask(g)
				_ = g.spent.Set(0) // as its reader does behind each request
				before, begun := g.session.account.Bytes(), time.Now()
				if g.drain(); g.send(op, m) != nil {
					t.Fatal("it does not wait")
				}
				id := g.requests
				time.Sleep(time.Second)
				synctest.Wait()
				if f := g.drain(); len(f) != 0 {
					t.Fatalf("it is answered before: %+v", f)
				}
				reply := g.send(wire.OpCancel, &wire.IDRequest{ID: id})
				var told wire.CodeReply
				if g.must(told.Decode(reply)); told.Code != wire.CodeOK {
					t.Fatalf("cancel: %s", told.Code)
				}
				synctest.Wait()
				f := g.drain()
				if len(f) != 1 || f[0].ID != id || f[0].Code != wire.CodeCancelled {
					t.Errorf("answered %+v", f)
				}
				if took := time.Since(begun); took != time.Second {
					t.Errorf("it took %v more", took-time.Second)
				}
				g.atRest(before, op == wire.OpWarm)
				close(hold)
				g.strike()
			})
		})
	}
}

// drain returns the headers of the frames that have come to the client.
func (g *stage) drain() (frames []wire.Header) {
	buf := make([]byte, 64<<10)
	n, _ := g.peer.TryRead(buf)
	for buf = buf[:n]; len(buf) > 0; {
		h := wire.DecodeHeader(buf)
		frames, buf = append(frames, h), buf[wire.HeaderBytes+int(h.BodyBytes):]
	}
	return frames
}

// atRest checks that no request waits, and that nothing is charged besides what was
// before it, unless the request goes on.
func (g *stage) atRest(before int64, goesOn bool) {
	g.t.Helper()
	g.session.mu.Lock()
	n := len(g.session.mu.waiting)
	g.session.mu.Unlock()
	_ = g.spent.Set(0)
	if under := g.session.under.Load(); n != 0 || under != 0 || g.session.account.Bytes() != before && !goesOn {
		g.t.Errorf("%d requests wait, %d bytes are unanswered, %d are charged, %d before", n, under, g.session.account.Bytes(), before)
	}
}
