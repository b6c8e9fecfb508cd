package server_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/internal/index"
	"github.com/kvstored/kvstored/internal/server"
	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

// eventful is the options of a rig whose events are on.
func eventful(o index.LogOptions) options {
	return options{Options: server.Options{Events: index.NewLog(42, o)}}
}

// event reads pushes of events until one has something in it.
func (c *raw) event() (uint64, wire.EventsPush) {
	c.t.Helper()
	for {
		for len(c.pushes) == 0 {
			f, err := c.read()
			if err != nil {
				c.t.Fatalf("waiting for a push: %v", err)
			}
			if f.Kind == wire.KindPush {
				c.pushes = append(c.pushes, f)
			} else {
				c.replies[f.ID] = f
			}
		}
		f := c.pushes[0]
		c.pushes = c.pushes[1:]
		var m wire.EventsPush
		if err := m.Decode(f.body); err != nil || f.Op != wire.OpEvents {
			c.t.Fatalf("%s: %v", f.Op, err)
		}
		if m.Events.Len() > 0 || m.Flags != 0 {
			return f.ID, m
		}
	}
}

func TestEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, eventful(index.LogOptions{}))
		c := r.greet(staged)
		id := c.send(wire.OpEvents, &wire.EventsRequest{From: wire.EventsNow})
		c.ping()
		p := chain(1, 3)
		r.store(p, 0, 3)
		at := make(map[key.Hash]tier.Set)
		for told := false; at[p.Hashes[0]]&at[p.Hashes[1]]&at[p.Hashes[2]] != tier.Of(tier.CPU)|tier.Of(tier.Disk); {
			of, m := c.event()
			if of != id || m.Epoch != 42 {
				t.Fatalf("%d: %+v", of, m)
			}
			for _, s := range m.Spaces {
				if told = true; s.Space.Model != "m" || s.ID != p.Space {
					t.Errorf("%+v", s)
				}
			}
			for i := range m.Events.Len() {
				e := m.Events.At(i)
				if !told || e.Kind != wire.EventStored || e.Space != p.Space {
					t.Fatalf("told %v: %+v", told, e)
				}
				at[e.Hash] |= tier.Set(e.Tier)
			}
		}
		if _, err := r.tiers.Remover.Delete(t.Context(), []key.Key{p.Key(2)}); err != nil {
			t.Fatal(err)
		}
		for removed := false; !removed; {
			_, m := c.event()
			for i := range m.Events.Len() {
				e := m.Events.At(i)
				removed = removed || e.Kind == wire.EventRemoved && e.Tier == wire.TierCPU && e.Hash == p.Hashes[2]
			}
		}
		var code wire.CodeReply
		if c.do(wire.OpCancel, &wire.IDRequest{ID: id}, &code); code.Code != wire.CodeOK {
			t.Fatal(code)
		}
		if f := c.take(id); f.Code != wire.CodeCancelled {
			t.Errorf("it ends with %s", f.Code)
		}
	})
}

// TestEventsOfDistrust: chunks of a space that is distrusted are told as removed, and as
// stored once it is trusted again; a snapshot between has none of them.
func TestEventsOfDistrust(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, eventful(index.LogOptions{}))
		p, other := chain(1, 3), chainIn(modelSpace("other"), 2, 2)
		r.store(p, 0, 3)
		r.store(other, 0, 2)
		c := r.greet(staged)
		c.send(wire.OpEvents, &wire.EventsRequest{From: wire.EventsNow})
		c.ping()
		told := func(want wire.EventKind) {
			t.Helper()
			for n := 0; n < 2*3; { // in DRAM and on disk
				_, m := c.event()
				for i := range m.Events.Len() {
					switch e := m.Events.At(i); {
					case e.Space == other.Space:
					case e.Kind != want:
						t.Fatalf("%+v, want %s", e, want)
					default:
						n++
					}
				}
			}
		}
		r.must(r.tiers.Writers.Flush(t.Context(), false))
		a := r.dial(client.Options{Inline: true})
		told(wire.EventStored)
		r.keepDistrusted()
		r.must(a.Distrust(t.Context(), space))
		told(wire.EventRemoved)
		there := 0
		r.must(r.tiers.Operator.Contents(t.Context(), func(list []index.Change) error {
			for _, e := range list {
				if there++; e.Key.Space != other.Space {
					t.Errorf("a snapshot has %+v", e)
				}
			}
			return nil
		}))
		if there != 2*2 {
			t.Errorf("a snapshot has %d chunks", there)
		}
		if was, err := r.server.Trust(p.Space); !was || err != nil {
			t.Fatal(was, err)
		}
		told(wire.EventStored)
		late := &shelf{text: fmt.Appendf(nil, "%x 0 0\n", p.Space[:])}
		if garbled, err := r.tiers.Operator.Distrusted().Keep(late); garbled != nil || err != nil {
			t.Fatal(garbled, err)
		}
		told(wire.EventRemoved) // that only the folder of a disk that opens late knew
	})
}

// A snapshot is all that is there, each chunk before those that follow it.
func TestEventsSnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, eventful(index.LogOptions{}))
		p := chain(1, 300)
		r.onDisk(p, 0, 4)
		r.store(p, 4, 200)
		c := r.greet(staged)
		c.send(wire.OpEvents, &wire.EventsRequest{Snapshot: true})
		known, parts := map[key.Hash]bool{{}: true}, 0
		for {
			_, m := c.event()
			if m.Flags&wire.EventsSnapshot == 0 {
				t.Fatalf("%+v", m)
			}
			for i := range m.Events.Len() {
				e := m.Events.At(i)
				if !known[e.Parent] {
					t.Fatalf("chunk %x comes before the one before it", e.Hash)
				}
				known[e.Hash] = true
			}
			if parts++; m.Flags&wire.EventsComplete != 0 {
				break
			}
			if parts > 100 {
				t.Fatal("it does not end")
			}
		}
		if len(known) != 1+200 {
			t.Errorf("%d chunks of 200", len(known)-1)
		}
	})
}

// The chunks that a start finds are told again once a client has said what their space
// is: without that they say nothing to a router.
func TestEventsOfSpaceNamedLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, eventful(index.LogOptions{}))
		p := chain(1, 250)
		r.store(p, 0, 250)
		other := space
		other.Model = "other"
		c := r.dial(client.Options{Space: &other})
		known, told := make(map[key.SpaceID]key.Space), map[key.Hash]bool{{}: true}
		err := c.Events(t.Context(), client.EventsOptions{From: client.EventsNow, Snapshot: true}, func(b *client.EventBatch) error {
			maps.Copy(known, b.Spaces)
			for i := range b.Events {
				e := &b.Events[i]
				if s, named := known[e.Space]; named && s.Model == "m" && told[e.Parent] {
					told[e.Hash] = true
				}
			}
			switch {
			case b.Complete && len(told) > 1:
				t.Errorf("%d chunks are of a space that no client has opened", len(told)-1)
			case b.Complete:
				r.dial(client.Options{})
			case len(told) == 1+250:
				return errEnough
			}
			return nil
		})
		if !errors.Is(err, errEnough) {
			t.Fatal(err)
		}
	})
}

// Clients that ask for all that is there and read nothing keep no other from it.
func TestDeafSnapshots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := eventful(index.LogOptions{})
		o.Options.Limits = server.Limits{QueueBytes: 64 * kib, StallTimeout: time.Hour}
		r := newRig(t, o)
		const many = 8_000
		for p, at := chain(1, many), 0; at < many; at += 200 {
			r.onDiskSized(p, at, at+200, 512)
		}
		for range 3 {
			r.greet(0).send(wire.OpEvents, &wire.EventsRequest{Snapshot: true})
		}
		c := r.greet(0)
		c.send(wire.OpEvents, &wire.EventsRequest{Snapshot: true})
		r.must(c.conn.SetReadDeadline(time.Now().Add(patience)))
		for told, complete := 0, false; !complete; {
			_, m := c.event()
			if complete = m.Flags&wire.EventsComplete != 0; complete && told != many {
				t.Errorf("%d chunks of %d", told, many)
			}
			told += m.Events.Len()
		}
	})
}

// A place that is gone, one that never was, and one of another epoch: the client is
// told, and goes on with the next batch.
func TestEventsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := eventful(index.LogOptions{Batches: 1})
		o.lone = true // what the disk has would be another batch, in place of the first
		r := newRig(t, o)
		c := r.greet(staged)
		for _, req := range []wire.EventsRequest{{Epoch: 42, From: 1 << 40}, {Epoch: 41}, {}} {
			c.send(wire.OpEvents, &req)
			if _, m := c.event(); m.Flags != wire.EventsLost {
				t.Errorf("%+v: %+v", req, m)
			}
		}
		r.store(chain(1, 1), 0, 1)
		if _, m := c.event(); m.Events.Len() == 0 {
			t.Errorf("then came %+v", m)
		}
	})
}

func TestEventsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		part(t, "off", func(t *testing.T) {
			newRig(t, options{}).greet(0).refused(wire.CodeUnsupported, wire.OpEvents, &wire.EventsRequest{From: wire.EventsNow})
		})
		r := newRig(t, eventful(index.LogOptions{}))
		c := r.greet(0)
		c.refused(wire.CodeBadRequest, wire.OpEvents, bodyOf("\x02"))
		c.refused(wire.CodeBadRequest, wire.OpEvents, bodyOf("\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"))
		for range 1024 { // each costs memory until it ends, and there are so many requests at most
			c.send(wire.OpEvents, &wire.EventsRequest{From: wire.EventsNow})
		}
		c.refused(wire.CodeOverBudget, wire.OpEvents, &wire.EventsRequest{From: wire.EventsNow})
	})
}

// The requests of one user that wait are bounded over all its connections, and those that
// have ended count no more.
func TestWaitingIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, eventful(index.LogOptions{}))
		var all []*raw
		for range 8 {
			c := r.greet(0)
			for range 1024 {
				c.send(wire.OpEvents, &wire.EventsRequest{From: wire.EventsNow})
			}
			c.ping()
			all = append(all, c)
		}
		c := r.greet(0)
		c.refused(wire.CodeOverBudget, wire.OpEvents, &wire.EventsRequest{From: wire.EventsNow})
		r.must(all[0].conn.Close())
		r.until("a connection has ended", func() bool { return r.server.Stats().Connections == 8 })
		id := c.send(wire.OpEvents, &wire.EventsRequest{From: wire.EventsNow})
		var code wire.CodeReply
		if c.do(wire.OpCancel, &wire.IDRequest{ID: id}, &code); code.Code != wire.CodeOK {
			t.Errorf("after others have ended it is not taken: %v", code)
		}
	})
}

var errEnough = errors.New("enough")

// The Go client: a callback that ends it, a context that does, and the connection
// goes on.
func TestClientEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, eventful(index.LogOptions{}))
		c := r.dial(client.Options{Space: &space})
		for range 3 {
			err := c.Events(t.Context(), client.EventsOptions{Snapshot: true}, func(b *client.EventBatch) error {
				if b.Complete {
					return errEnough
				}
				return nil
			})
			if !errors.Is(err, errEnough) {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		err := c.Events(ctx, client.EventsOptions{From: 7}, func(b *client.EventBatch) error {
			if !b.Lost {
				t.Errorf("%+v", b)
			}
			second := c.Events(ctx, client.EventsOptions{}, nil)
			if !errors.Is(second, client.ErrBadRequest) {
				t.Errorf("a second call: %v", second)
			}
			cancel()
			return nil
		})
		if !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if err := c.Ping(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
