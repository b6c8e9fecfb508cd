package server_test

import (
	"errors"
	"io"
	"testing"
	"time"

	"github.com/kvstored/kvstored/internal/index"
	"github.com/kvstored/kvstored/internal/server"
	"github.com/kvstored/kvstored/internal/wire"
)

// FuzzSession sends anything after a good hello. The session must end when the
// client does, without a panic and with nothing held.
func FuzzSession(f *testing.F) {
	r := newRig(f, options{Options: server.Options{
		Events:   index.NewLog(1, index.LogOptions{}),
		Stats:    func(wire.Rights) ([]byte, error) { return []byte("{}"), nil },
		Settings: server.Settings{LeaseMaxAge: time.Second, Prefetch: server.Prefetch{Deadline: 10 * time.Millisecond}},
	}})
	p := chain(1, 3)
	ch := wire.Chain{Form: wire.FormHashes, Width: 16}
	for _, h := range p.Hashes {
		ch.Hashes = append(ch.Hashes, h[:]...)
	}
	r.store(p, 0, 2)
	sizes := wire.ViewU32s([]uint32{100})
	// Ids of jobs and fills count up over the whole server, so that a seed
	// cannot know them; what refers to the last one is sent with all that are
	// likely.
	var all []byte
	add := func(op wire.Op, m wire.Message) {
		frame := wire.AppendRequest(nil, op, uint64(len(all)), m)
		all = append(all, frame...)
		f.Add(frame)
	}
	add(wire.OpPut, &wire.PutRequest{Chain: ch, Sizes: wire.ViewU32s([]uint32{1, 2}), Payloads: []byte("abc")})
	add(wire.OpLookup, &wire.LookupRequest{Chain: ch})
	add(wire.OpPrefetch, &wire.PrefetchRequest{Chain: ch, LookupID: "x", Flags: wire.PrefetchPin})
	other := space
	other.World, other.Worker = 2, 1
	add(wire.OpOpenSpace, &wire.OpenSpaceRequest{Space: other})
	add(wire.OpPrefetch, &wire.PrefetchRequest{Chain: ch, Shared: wire.Shared{Ranks: wire.ViewU32s([]uint32{1}), PrefillRate: 100}})
	add(wire.OpWarm, &wire.WarmRequest{Chain: ch, Deadline: wire.Deadline{Given: true, Millis: 5}})
	add(wire.OpWarm, &wire.WarmRequest{Chain: wire.Chain{Form: wire.FormNone}, LookupID: "x"})
	add(wire.OpBatch, &wire.BatchRequest{Prompts: []wire.BatchPrompt{{Chain: ch, LookupID: "y"}, {Chain: refChain(1)}}, Shared: wire.Shared{PrefillRate: 9}})
	groups := wire.Groups(nil).Add(wire.Group{}).Add(wire.Group{Space: 1, Kind: wire.GroupWindow, Tokens: 32})
	add(wire.OpLookup, &wire.LookupRequest{Chain: ch, Shared: wire.Shared{Groups: groups, Lengths: 3}})
	add(wire.OpPrefetch, &wire.PrefetchRequest{Chain: ch, Shared: wire.Shared{Groups: groups, Lengths: 3, PrefillRate: 7, Configs: wire.Pairs(nil).Add("retain_priority", "9")}})
	add(wire.OpReserve, &wire.ReserveRequest{Chain: ch, Sizes: wire.ViewU32s([]uint32{100, 200}), Groups: groups, MaxAge: 1})
	add(wire.OpReserve, &wire.ReserveRequest{Chain: ch, Sizes: wire.ViewU32s([]uint32{1, 2, 3, 0, 0, 6}), Groups: groups})
	add(wire.OpHint, &wire.HintRequest{Chain: ch, Configs: wire.Pairs(nil).Add("kv_hints", `{"version":1,"actions":[{"action":"kv.retain","version":1,"directives":[{"start":0,"end":16,"priority":9}]}]}`)})
	add(wire.OpEvents, &wire.EventsRequest{Snapshot: true, Deadline: wire.Deadline{Given: true, Millis: 5}})
	add(wire.OpEvents, &wire.EventsRequest{From: wire.EventsNow})
	add(wire.OpCancel, &wire.IDRequest{ID: uint64(len(all))})
	add(wire.OpReserve, &wire.ReserveRequest{Chain: ch, Sizes: sizes})
	add(wire.OpReserve, &wire.ReserveRequest{Chain: ch, First: 2, Sizes: sizes, Deadline: wire.Deadline{Given: true, Millis: 5}})
	for id := range uint64(8) {
		add(wire.OpWait, &wire.WaitRequest{Job: id, MinTokens: 99, Deadline: wire.Deadline{Given: true, Millis: 5}, From: wire.FromUnsent})
		add(wire.OpCommit, &wire.FillRequest{Fill: id, Count: 1})
		add(wire.OpGet, &wire.GetRequest{Chain: refChain(id), Deadline: wire.Deadline{Given: true, Millis: 5}})
		add(wire.OpRenew, &wire.IDRequest{ID: id})
		add(wire.OpAbort, &wire.FillRequest{Fill: id})
		add(wire.OpRelease, &wire.IDRequest{ID: id})
		add(wire.OpRelease, &wire.IDRequest{ID: id})
	}
	add(wire.OpGet, &wire.GetRequest{Chain: ch, Deadline: wire.Deadline{Given: true, Millis: 5}})
	add(wire.OpPin, &wire.PinRequest{Chain: ch, LookupID: "x"})
	add(wire.OpPin, &wire.PinRequest{Chain: wire.Chain{Form: wire.FormNone}, LookupID: "x"})
	add(wire.OpOpenSpace, &wire.OpenSpaceRequest{Space: space})
	add(wire.OpFlush, &wire.FlushRequest{Durable: true, Deadline: wire.Deadline{Given: true, Millis: 5}})
	add(wire.OpDelete, &wire.DeleteRequest{Chain: ch})
	add(wire.OpDelete, &wire.DeleteRequest{Chain: wire.Chain{Form: wire.FormNone}})
	add(28, &wire.EmptyRequest{})
	add(wire.OpStats, wire.EmptyRequest{})
	add(wire.OpHello, &wire.HelloRequest{MinVersion: 2, MaxVersion: 2})
	f.Add(all)
	f.Add(all[:len(all)/2])

	f.Fuzz(func(t *testing.T, b []byte) {
		here := *r
		here.t = t
		c := here.greet(wire.FeatureArena | wire.FeatureStaging | wire.FeaturePushes)
		defer c.nc.Close()
		ended := make(chan error, 1)
		go func() {
			_, err := io.Copy(io.Discard, c.nc)
			ended <- err
		}()
		if _, err := c.conn.Write(b); err == nil { // otherwise it was closed already
			_ = c.nc.(interface{ CloseWrite() error }).CloseWrite()
		}
		err := <-ended
		var timeout interface{ Timeout() bool }
		if errors.As(err, &timeout) && timeout.Timeout() {
			t.Fatal("the connection stays")
		}
		if !poll(func() bool { return r.server.Stats().Connections == 0 }) {
			t.Fatal("the session stays")
		}
		if r.leased() != 0 || r.pinned() != 0 {
			t.Fatalf("left behind: %+v", r.hot.Ledger().Stats())
		}
		// A load under way goes on into the cache.
		if !poll(func() bool { return r.hot.Ledger().Stats().Filling == 0 }) {
			t.Fatalf("a load has no end: %+v", r.hot.Ledger().Stats())
		}
	})
}
