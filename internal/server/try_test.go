package server_test

import (
	"testing"
	"testing/synctest"

	"github.com/kvstored/kvstored/internal/wire"
)

// A reservation that may wait, and finds room, is answered before the requests behind it.
func TestReserveWithRoomIsInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, options{lone: true}) // a disk is scanned first, which a reservation waits for
		c := r.greet(wire.FeatureArena | wire.FeatureStaging)
		for i := range uint64(50) {
			ask := wire.ReserveRequest{Chain: c.chain(chain(i, 2)), Sizes: wire.ViewU32s([]uint32{size}), Deadline: wire.Deadline{Given: true, Millis: 1 << 30}}
			frames := wire.AppendRequest(nil, wire.OpReserve, c.next+1, &ask)
			frames = wire.AppendRequest(frames, wire.OpPing, c.next+2, wire.EmptyRequest{})
			c.write(frames)
			c.next += 2
			f, err := c.read()
			var m wire.ReserveReply
			if err != nil || f.Op != wire.OpReserve || f.ID != c.next-1 || m.Decode(f.body) != nil || m.Slots.Len() != 2 {
				t.Fatalf("the first reply is to %s: %d slots, %v", f.Op, m.Slots.Len(), err)
			}
			if f, err = c.read(); err != nil || f.Op != wire.OpPing {
				t.Fatalf("the second reply is to %s: %v", f.Op, err)
			}
			c.do(wire.OpAbort, &wire.FillRequest{Fill: m.Fill}, wire.EmptyReply{})
		}
		if r.leased() != 0 {
			t.Errorf("%d bytes are leased", r.leased())
		}
	})
}

// A reservation whose first chunk exists, and the next has no room, waits for that: it is
// not answered with the one that exists.
func TestReserveWaitsBehindWhatExists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, options{capacity: 8 * size})
		r.store(chain(1, 1), 0, 1)
		wants := wire.FeatureArena | wire.FeatureStaging
		a, b := r.greet(wants), r.greet(wants)
		job := a.prefetch(chain(1, 1)) // so that it stays
		if f := a.reserve(chain(2, 7)); f.Slots.Len() != 7 {
			t.Fatalf("%d slots", f.Slots.Len())
		} else {
			ask := wire.ReserveRequest{Chain: b.chain(chain(1, 2)), Sizes: wire.ViewU32s([]uint32{size}), Deadline: wire.Deadline{Given: true, Millis: 1 << 30}}
			id := b.send(wire.OpReserve, &ask)
			b.ping()
			a.do(wire.OpAbort, &wire.FillRequest{Fill: f.Fill}, wire.EmptyReply{})
			var m wire.ReserveReply
			b.await(id, &m)
			if m.Code != wire.CodeOK || m.Slots.Len() != 2 || m.Slots.At(0).Code != wire.CodeExists || m.Slots.At(1).Code != wire.CodeOK {
				t.Errorf("%s, %d slots", m.Code, m.Slots.Len())
			}
			b.do(wire.OpAbort, &wire.FillRequest{Fill: m.Fill}, wire.EmptyReply{})
		}
		a.do(wire.OpRelease, &wire.IDRequest{ID: job.Job}, new(wire.ReleaseReply))
		if r.leased() != 0 {
			t.Errorf("%d bytes are leased", r.leased())
		}
	})
}
