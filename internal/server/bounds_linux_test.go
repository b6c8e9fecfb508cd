package server_test

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/kvstored/kvstored/internal/index"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/internal/server"
	"github.com/kvstored/kvstored/internal/server/hint"
	"github.com/kvstored/kvstored/internal/store"
	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/internal/wire/wiretest"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

// storeMany is store for all chunks of c, of so many bytes each, at once.
func (r *rig) storeMany(c *key.Chain, bytes uint32) {
	r.t.Helper()
	sizes, grants := make([]uint32, c.Len()), make([]store.Grant, c.Len())
	for i := range sizes {
		sizes[i] = bytes
	}
	_, err := r.tiers.Filler.Reserve(r.t.Context(), store.Reservation{Owner: ledger.Daemon}, c, 0, sizes, grants)
	r.must(err)
	refs := make([]tier.Ref, len(grants))
	for i := range grants {
		refs[i] = grants[i].Ref
		refs[i].Block.Seal()
	}
	r.tiers.Filler.Commit(c, 0, refs, 0, make([]bool, len(refs)))
}

// frugal is a connection with the least largest reply there is.
func (r *rig) frugal(wants wire.Features, staging uint64) *raw {
	c := r.connect()
	c.conn.SetMaxBody(wire.LeastBodyBytes)
	c.say(&wire.HelloRequest{Wants: wants, MaxReply: 1, StagingBytes: staging})
	return c
}

// tooLarge wants a request refused with a limit.
func (c *raw) tooLarge(op wire.Op, m wire.Message) (limit uint64) {
	c.t.Helper()
	f := c.take(c.send(op, m))
	var e wire.ErrorReply
	if f.Code != wire.CodeTooLarge || e.Decode(f.body) != nil {
		c.t.Fatalf("%s: %s", op, f.Code)
	}
	return e.Limit
}

// moreThanFit is so many chunks that their refs, slots or results take more than 1 MiB.
const moreThanFit = 66_000

// TestLargestReply: no reply and no push is larger than what the client has agreed to.
// What can be told in parts is; other requests are refused before they have done
// anything. A larger frame would fail the client's reader.
func TestLargestReply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const many, fit = moreThanFit, 60_000
		r := newRig(t, options{capacity: 300 * mib, lone: true})
		long := chain(1, many)
		r.storeMany(long, 100)

		part(t, "jobs", func(t *testing.T) {
			for _, pushes := range []wire.Features{0, wire.FeaturePushes} {
				c := r.frugal(wire.FeatureArena|pushes, 0)
				c.t = t
				var one wire.PrefetchReply
				c.do(wire.OpPrefetch, &wire.PrefetchRequest{Chain: c.chain(long)}, &one)
				var all wire.BatchReply
				c.do(wire.OpBatch, &wire.BatchRequest{Prompts: []wire.BatchPrompt{{Chain: refChain(one.Job)}, {Chain: c.chain(long)}, {Chain: refChain(one.Job)}}}, &all)
				states := map[uint64]*wire.JobState{one.Job: &one.State}
				for i := range all.Jobs {
					states[all.Jobs[i].Prefetch.Job] = &all.Jobs[i].Prefetch.State
				}
				if len(states) != 4 {
					t.Fatalf("%+v", all)
				}
				for job, st := range states {
					have := st.Refs.Len()
					if have == 0 || have == many || st.Done() || int(st.Ready.Chunks) != have {
						t.Fatalf("job %d: %d refs at first, %+v", job, have, st.Ready)
					}
					for have < many {
						var more wire.JobState
						if c.do(wire.OpWait, &wire.WaitRequest{Job: job, MinTokens: uint64(have+1) * tokens, From: uint32(have)}, &more); more.Refs.Len() == 0 || int(more.First) != have {
							t.Fatalf("job %d: %d refs from %d on, of which it has %d", job, more.Refs.Len(), more.First, have)
						}
						have += more.Refs.Len()
						*st = more
					}
					if have != many || st.Code != wire.CodeOK {
						t.Errorf("job %d: %d refs, %s", job, have, st.Code)
					}
				}
			}
		})
		part(t, "get", func(t *testing.T) {
			c := r.frugal(0, 0)
			c.t = t
			var got wire.GetReply
			if c.do(wire.OpGet, &wire.GetRequest{Chain: c.chain(long)}, &got); got.Chunks.Len() == 0 || got.Chunks.Len() == many {
				t.Errorf("%d chunks", got.Chunks.Len())
			}
			huge := chain(2, 1)
			r.storeMany(huge, 2*mib)
			if limit := c.tooLarge(wire.OpGet, &wire.GetRequest{Chain: c.chain(huge)}); limit == 0 || limit >= 2*mib {
				t.Errorf("limit %d", limit)
			}
		})
		part(t, "reserve what exists", func(t *testing.T) {
			c := r.frugal(staged, 0)
			c.t = t
			var m wire.ReserveReply
			c.do(wire.OpReserve, &wire.ReserveRequest{Chain: c.chain(long), Sizes: wire.ViewU32s([]uint32{100})}, &m)
			if n := m.Slots.Len(); n < fit || n == many || m.Code != wire.CodeTooLarge || m.Fill != 0 || m.Slots.At(n-1).Code != wire.CodeExists {
				t.Errorf("%d slots, %s, fill %d", n, m.Code, m.Fill)
			}
		})
	})
}

// TestLargestRequest: what asks for a larger reply is refused before it has done anything,
// or answered in part.
func TestLargestRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const many, fit = moreThanFit, 60_000
		text := make([]byte, wire.LeastBodyBytes+1)
		for i := range text {
			text[i] = ' '
		}
		r := newRig(t, options{capacity: 300 * mib, lone: true, Options: server.Options{
			Stats: func(wire.Rights) ([]byte, error) { return text, nil },
		}})
		part(t, "put", func(t *testing.T) {
			c := r.frugal(0, 0)
			c.t = t
			p := chain(3, many)
			limit := c.tooLarge(wire.OpPut, &wire.PutRequest{Chain: c.chain(p), Sizes: wire.ViewU32s(ones(many)), Payloads: make([]byte, many)})
			var look wire.LookupReply
			if c.do(wire.OpLookup, &wire.LookupRequest{Chain: c.chain(p)}, &look); limit < fit || limit >= many || look.Match.Total.Chunks != 0 {
				t.Errorf("limit %d, and %d chunks are stored", limit, look.Match.Total.Chunks)
			}
		})
		part(t, "reserve", func(t *testing.T) {
			c := r.frugal(staged, 0)
			c.t = t
			p, before := chain(4, many), r.leased()
			limit := c.tooLarge(wire.OpReserve, &wire.ReserveRequest{Chain: c.chain(p), Sizes: wire.ViewU32s([]uint32{1}), Flags: wire.ReserveAllOrNothing})
			if limit < fit || limit >= many || r.leased() != before {
				t.Errorf("limit %d, %d bytes leased, %d before", limit, r.leased(), before)
			}
		})

		part(t, "stats", func(t *testing.T) {
			c := r.frugal(0, 0)
			c.t = t
			c.tooLarge(wire.OpStats, wire.EmptyRequest{})
			c.ping()
		})
	})
}

// TestLargestEvents: the spaces that a push of events tells may take more than the least
// reply, so events are for clients that take larger ones.
func TestLargestEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, eventful(index.LogOptions{}))
		r.frugal(0, 0).tooLarge(wire.OpEvents, &wire.EventsRequest{From: wire.EventsNow, Snapshot: true})
		many := r.greet(0)
		const spaces = 58 // as many of this size as the daemon remembers
		for i := range spaces {
			s := space
			s.Model = fmt.Sprint("m", i)
			for k := range key.MaxTags {
				s.Tags = append(s.Tags, key.Tag{Name: fmt.Sprintf("%02d", k), Value: strings.Repeat("x", key.MaxTextBytes)})
			}
			var opened wire.OpenSpaceReply
			many.do(wire.OpOpenSpace, &wire.OpenSpaceRequest{Space: s}, &opened)
			ch := many.chain(chain(1, 1))
			ch.Space = opened.Space.Handle
			many.do(wire.OpPut, &wire.PutRequest{Chain: ch, Sizes: wire.ViewU32s([]uint32{1}), Payloads: []byte{1}}, new(wire.StoreReply))
		}
		c := r.connect()
		c.conn.SetMaxBody(wire.EventsBytes)
		c.say(&wire.HelloRequest{MaxReply: wire.EventsBytes})
		c.send(wire.OpEvents, &wire.EventsRequest{From: wire.EventsNow, Snapshot: true})
		largest, told := 0, 0
		for told < spaces {
			_, m := c.event()
			largest, told = max(largest, len(m.Append(nil))), told+len(m.Spaces)
		}
		if largest <= wire.LeastBodyBytes {
			t.Errorf("the largest of the pushes has %d bytes: this tests too little", largest)
		}
	})
}

// TestLimitsOfSchema: the limits of the schema that are the server's.
func TestLimitsOfSchema(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := wiretest.Read("../../testdata/wire/schema.json")
		if err != nil {
			t.Fatal(err)
		}
		r := newRig(t, options{})
		c := r.connect()
		c.say(&wire.HelloRequest{Wants: staged, StagingBytes: math.MaxUint64})
		h, l := &c.hello, &c.hello.Limits
		for name, got := range map[string][]uint64{
			"live":         {uint64(l.Requests), uint64(l.Jobs), uint64(l.Fills), uint64(l.Pins), uint64(l.Spaces)},
			"warms":        {uint64(l.Warms)},
			"window_bytes": {h.StagingBytes},
			"event_batch":  {index.MaxBatch},
			"events_bytes": {wire.EventsBytes},
			"actions":      {hint.MaxActions},
			"directives":   {hint.MaxDirectives},
		} {
			for _, n := range got {
				if n != s.Limits[name] {
					t.Errorf("%s is %d, the schema says %d", name, n, s.Limits[name])
				}
			}
		}
	})
}

func ones(n int) []uint32 {
	out := make([]uint32, n)
	for i := range out {
		out[i] = 1
	}
	return out
}

// TestCredit: a client that has as many bytes unanswered as was agreed on is refused
// more, loses nothing by it, and may cancel.
func TestCredit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hook, open := gate()
		r := newRig(t, options{hook: hook})
		defer close(open)
		r.onDisk(chain(1, 1), 0, 1)
		c := r.connect()
		c.say(&wire.HelloRequest{MaxRequest: 1, Credit: 1})
		if c.hello.Credit != wire.LeastBodyBytes {
			t.Fatalf("credit %d", c.hello.Credit)
		}
		long := chain(1, 40_000) // a chain of 640 KB
		large := &wire.GetRequest{Chain: c.chain(long), Deadline: inAges}
		first := c.send(wire.OpGet, large)
		for range 2 {
			f := c.take(c.send(wire.OpGet, large))
			var e wire.ErrorReply
			if r.must(e.Decode(f.body)); f.Code != wire.CodeOverBudget || e.Retry != wire.RetryRelease {
				t.Fatalf("the second: %s, %+v", f.Code, e)
			}
		}
		c.refused(wire.CodeOverBudget, wire.OpPut, &wire.PutRequest{Chain: c.chain(chain(2, 1)), Sizes: wire.ViewU32s([]uint32{900 << 10}), Payloads: make([]byte, 900<<10)})
		c.ping()
		var m wire.CodeReply
		if c.do(wire.OpCancel, &wire.IDRequest{ID: first}, &m); m.Code != wire.CodeOK {
			t.Errorf("cancel: %s", m.Code)
		}
		if f := c.take(first); f.Code != wire.CodeCancelled {
			t.Errorf("the first: %s", f.Code)
		}
		again := c.send(wire.OpGet, large)
		c.ping()
		c.do(wire.OpCancel, &wire.IDRequest{ID: again}, &m)
		if f := c.take(again); f.Code != wire.CodeCancelled {
			t.Errorf("with the credit back: %s", f.Code)
		}
	})
}
