package server_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/server"
	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
	"github.com/kvstored/kvstored/tier/tierfault"
	"github.com/kvstored/kvstored/tier/tiertest"
)

// modes are the ways to put, and what the connection must say it got.
var modes = map[string]struct {
	o    client.Options
	puts client.PutMode
}{
	"staged": {client.Options{}, client.PutStaged},
	"inline": {client.Options{Inline: true}, client.PutInline},
}

func TestPutAndRead(t *testing.T) {
	for name, mode := range modes {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx := t.Context()
				r := newRig(t, options{})
				c := r.dial(mode.o)
				if c.PutMode() != mode.puts || c.Epoch() != 42 || c.Server() != "test" {
					t.Errorf("got %s, epoch %d, server %q", c.PutMode(), c.Epoch(), c.Server())
				}
				p := chain(1, 8)
				r.must(put(ctx, c, p, 0, 8))
				r.until("fills are over", func() bool { return r.leased() == 0 })
				m, err := c.Lookup(ctx, client.Chain(chain(1, 20)), 0)
				r.must(err)
				if m.Total.Chunks != 8 || m.Total.Tokens != 8*tokens || m.Tiers[0].Chunks != 8 {
					t.Errorf("lookup: %+v", m)
				}
				j, err := c.Prefetch(ctx, client.Chain(chain(1, 20)), client.PrefetchOptions{})
				r.must(err)
				st, err := j.Wait(ctx, client.All)
				r.must(err)
				if !st.Done || st.Reason != client.Complete || st.Ready.Chunks != 8 {
					t.Errorf("job: %+v", st)
				}
				for i := range 8 {
					b, err := j.Chunk(ctx, i)
					r.must(err)
					r.must(tiertest.CheckPayload(p.Key(i), b))
				}
				r.must(j.Release(ctx))
				if got := r.leased(); got != 0 {
					t.Errorf("%d bytes are leased after the release", got)
				}
				got, err := c.Get(ctx, client.Chain(p), client.GetOptions{First: 2})
				r.must(err)
				if len(got) != 6 {
					t.Fatalf("get: %d chunks", len(got))
				}
				for i, ch := range got {
					r.must(tiertest.CheckPayload(p.Key(2+i), ch.Bytes))
				}
			})
		})
	}
}

func TestTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, options{})
		c := r.connect()
		c.greet(0)
		var opened wire.OpenSpaceReply
		s := space
		s.Method = key.SHA256
		c.do(wire.OpOpenSpace, &wire.OpenSpaceRequest{Space: s}, &opened)
		first := opened
		c.do(wire.OpOpenSpace, &wire.OpenSpaceRequest{Space: s}, &opened)
		if opened != first || opened.Space.Handle == c.space {
			t.Errorf("opened as %+v, then %+v", first, opened)
		}
		prompt := make([]uint32, 2*tokens+5)
		for i := range prompt {
			prompt[i] = uint32(i)
		}
		ch := wire.Chain{Space: opened.Space.Handle, Form: wire.FormTokens, Tokens: wire.ViewU32s(prompt), SaveUnfull: true}
		var stored wire.StoreReply
		c.do(wire.OpPut, &wire.PutRequest{Chain: ch, Sizes: wire.ViewU32s([]uint32{3, 4, 5}), Payloads: []byte("aaabbbbccccc")}, &stored)
		for i := range stored.Results.Len() {
			if s := stored.Results.At(i); s.Code != wire.CodeOK || s.Sum != arena.Checksum([]byte([]string{"aaa", "bbbb", "ccccc"}[i])) {
				t.Errorf("chunk %d: %+v", i, s)
			}
		}
		c.do(wire.OpPut, &wire.PutRequest{Chain: ch, Sizes: wire.ViewU32s([]uint32{3, 4}), Payloads: []byte("aaaBBBB")}, &stored)
		if a, b := stored.Results.At(0).Code, stored.Results.At(1).Code; a != wire.CodeExists || b != wire.CodeDiffers {
			t.Errorf("put again: %s, %s", a, b)
		}
		var look wire.LookupReply
		c.do(wire.OpLookup, &wire.LookupRequest{Chain: ch}, &look)
		if look.Match.Total != (wire.Count{Chunks: 3, Tokens: 2*tokens + 5}) {
			t.Errorf("lookup: %+v", look.Match)
		}
		ch.SaveUnfull, ch.Skip = false, 1
		c.do(wire.OpLookup, &wire.LookupRequest{Chain: ch}, &look)
		if look.Match.Total != (wire.Count{Chunks: 1, Tokens: tokens}) {
			t.Errorf("lookup of full chunks but the first: %+v", look.Match)
		}
		var got wire.GetReply
		ch.SaveUnfull = true
		c.do(wire.OpGet, &wire.GetRequest{Chain: ch, First: 1}, &got)
		if string(got.Payloads) != "ccccc" || got.Chunks.At(0).Tokens != 5 {
			t.Errorf("get: %q %+v", got.Payloads, got.Chunks.At(0))
		}
		c.do(wire.OpGet, &wire.GetRequest{Chain: ch, MaxBytes: 4}, &got)
		if string(got.Payloads) != "bbbb" {
			t.Errorf("get of at most 4 bytes: %q", got.Payloads)
		}
		c.refused(wire.CodeBadRequest, wire.OpLookup, &wire.LookupRequest{Chain: wire.Chain{Space: c.space, Form: wire.FormTokens}})
	})
}

// gate lets loads through one by one.
func gate() (tierfault.Hook, chan struct{}) {
	open := make(chan struct{})
	return func(c tierfault.Call) tierfault.Fault {
		if c.Op == tierfault.Get {
			return tierfault.Fault{Until: open}
		}
		return tierfault.Fault{}
	}, open
}

func TestPrefetchFromBelow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hook, open := gate()
		r := newRig(t, options{hook: hook})
		p := chain(1, 10)
		r.onDisk(p, 4, 10)
		r.store(p, 0, 4)
		c := r.greet(wire.FeatureArena | wire.FeaturePushes)
		m := c.prefetch(p) // although nothing can come up yet
		if m.Match.Total.Chunks != 10 || m.Match.Tiers[0].Chunks != 4 || m.Match.Tiers[1].Chunks != 6 {
			t.Fatalf("match: %+v", m.Match)
		}
		st := m.State
		if st.Done() || st.Code != wire.CodeRunning || st.Ready.Chunks != 4 || st.Refs.Len() != 4 || st.First != 0 {
			t.Fatalf("first state: %+v", st)
		}
		refs := map[int]wire.Ref{}
		learn := func(st wire.JobState) {
			t.Helper()
			if int(st.First) != len(refs) {
				t.Fatalf("refs from %d, %d came before", st.First, len(refs))
			}
			for i := range st.Refs.Len() {
				refs[len(refs)] = st.Refs.At(i)
			}
			if int(st.Ready.Chunks) != len(refs) || st.Ready.Tokens != uint64(tokens*len(refs)) {
				t.Fatalf("ready %+v with %d refs", st.Ready, len(refs))
			}
		}
		learn(st)
		var now wire.JobState
		c.do(wire.OpWait, &wire.WaitRequest{Job: m.Job, MinTokens: 1000, From: wire.FromUnsent, Deadline: wire.Deadline{Given: true}}, &now)
		if now.Ready.Chunks != 4 || now.Done() {
			t.Errorf("a wait without time: %+v", now)
		}
		r.takes(20*time.Second, "a wait in vain", func() {
			c.do(wire.OpWait, &wire.WaitRequest{Job: m.Job, MinTokens: 5 * tokens, Deadline: wire.Within(20 * time.Second), From: 2}, &now)
		})
		if now.Ready.Chunks != 4 || now.First != 2 || now.Refs.Len() != 2 || now.Refs.At(0) != refs[2] {
			t.Errorf("a wait in vain: %+v", now)
		}
		six := c.send(wire.OpWait, &wire.WaitRequest{Job: m.Job, MinTokens: 5*tokens + 1, Deadline: wire.Deadline{Given: true, Millis: 1 << 30}})
		all := c.send(wire.OpWait, &wire.WaitRequest{Job: m.Job, MinTokens: 1 << 40, Deadline: wire.Deadline{Given: true, Millis: 1 << 30}})
		close(open)
		for !st.Done() {
			var job uint64
			if job, st = c.pushed(); job != m.Job {
				t.Fatalf("a push of job %d", job)
			}
			learn(st)
		}
		if st.Code != wire.CodeOK || len(refs) != 10 || st.Tiers[0].Chunks != 4 || st.Tiers[1].Chunks != 6 {
			t.Errorf("at the end: %+v", st)
		}
		if c.await(six, &now); now.Ready.Chunks < 6 {
			t.Errorf("waited for 6 chunks, got %+v", now)
		}
		if c.await(all, &now); !now.Done() || now.First != 0 || now.Refs.Len() != 10 {
			t.Errorf("waited for the end, got %+v", now)
		}
		for i, ref := range refs {
			if ref.Sum != arena.Checksum(tiertest.Payload(p.Key(i), size)) || ref.Length != size || ref.Tokens != tokens {
				t.Errorf("ref %d: %+v", i, ref)
			}
		}
		var look wire.LookupReply
		ch := refChain(m.Job)
		ch.Skip = 3
		if c.do(wire.OpLookup, &wire.LookupRequest{Chain: ch}, &look); look.Match.Total.Chunks != 7 {
			t.Errorf("lookup by reference: %+v", look.Match)
		}
		var out wire.ReleaseReply
		if c.do(wire.OpRelease, &wire.IDRequest{ID: m.Job}, &out); out.Code != wire.CodeOK {
			t.Error("released: ", out.Code)
		}
		c.refused(wire.CodeUnknownJob, wire.OpRelease, &wire.IDRequest{ID: m.Job})
		c.refused(wire.CodeUnknownJob, wire.OpLookup, &wire.LookupRequest{Chain: ch})
		if s := r.server.Stats(); s.LeasesLive != 0 || s.HitChunks[tier.CPU] != 4 || s.HitChunks[tier.Disk] != 6 || s.MatchedTokens != 10*tokens {
			t.Errorf("stats: %+v", s)
		}
	})
}

// The reply to release is the last frame about a job, also for the
// waits that were under way.
func TestReleaseIsTheLastWord(t *testing.T) {
	for _, reads := range []bool{false, true} {
		op := wire.OpRelease
		t.Run(fmt.Sprint("pushes ", reads), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				hook, open := gate()
				r := newRig(t, options{hook: hook})
				defer close(open)
				p := chain(1, 8)
				r.onDisk(p, 2, 8)
				r.store(p, 0, 2)
				c := r.greet(wire.FeatureArena | map[bool]wire.Features{true: wire.FeaturePushes}[reads])
				for range 50 {
					m := c.prefetch(p)
					waits := map[uint64]bool{}
					for range 4 {
						waits[c.send(wire.OpWait, &wire.WaitRequest{Job: m.Job, MinTokens: 1 << 40, Deadline: wire.Deadline{Given: true, Millis: 1 << 30}, From: wire.FromUnsent})] = true
					}
					end := c.send(op, &wire.IDRequest{ID: m.Job})
					for {
						f, err := c.read()
						r.must(err)
						if f.Kind == wire.KindPush {
							t.Fatal("a push, though the client ended the job")
						}
						if f.ID == end {
							if f.Code != wire.CodeOK || len(waits) > 0 {
								t.Fatalf("%s: %s, with %d waits unanswered", op, f.Code, len(waits))
							}
							break
						}
						var st wire.JobState
						r.must(st.Decode(f.body))
						if !waits[f.ID] || !st.Done() || st.Code != wire.CodeCancelled {
							t.Fatalf("wait: %+v", st)
						}
						delete(waits, f.ID)
					}
				}
				if r.leased() != 0 {
					t.Error("something is still leased")
				}
			})
		})
	}
}

func TestPolicies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hook, open := gate()
		r := newRig(t, options{hook: hook})
		defer close(open)
		p := chain(1, 8)
		r.onDisk(p, 2, 8)
		r.store(p, 0, 2)
		ctx := t.Context()
		c := r.dial(client.Options{})
		j, err := c.Prefetch(ctx, client.Chain(p), client.PrefetchOptions{Policy: client.BestEffort})
		r.must(err)
		st, err := j.Wait(ctx, client.All)
		r.must(err)
		if !st.Done || st.Ready.Chunks != 2 || st.Reason != client.StoppedDeadline {
			t.Errorf("best effort: %+v", st)
		}
		r.must(j.Release(ctx))
		j, err = c.Prefetch(ctx, client.Chain(p), client.PrefetchOptions{Deadline: 20 * time.Second})
		r.must(err)
		r.takes(20*time.Second, "the deadline", func() { st, err = j.Wait(ctx, client.All) })
		r.must(err)
		if !st.Done || st.Ready.Chunks != 2 || st.Reason != client.StoppedDeadline {
			t.Errorf("deadline: %+v", st)
		}
		r.must(j.Release(ctx))
	})
}

func TestPrefetchEndsAtTheFirstFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := chain(1, 8)
		r := newRig(t, options{hook: tierfault.OnKey(tierfault.Get, p.Key(5), tierfault.Fault{Err: tier.ErrOff})})
		r.onDisk(p, 0, 8)
		c := r.dial(client.Options{})
		j, err := c.Prefetch(t.Context(), client.Chain(p), client.PrefetchOptions{Policy: client.WaitComplete})
		r.must(err)
		st, err := j.Wait(t.Context(), client.All)
		r.must(err)
		if st.Ready.Chunks != 5 || st.Reason != client.StoppedFailed || st.FailedTier != "disk" {
			t.Errorf("%+v", st)
		}
		st, err = j.Cancel(t.Context())
		r.must(err)
		if st.Reason != client.StoppedFailed {
			t.Errorf("cancelled afterwards: %+v", st)
		}
	})
}

func TestPins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, options{})
		p := chain(1, 8)
		r.store(p, 0, 8)
		ctx := t.Context()
		a, b := r.dial(client.Options{}), r.dial(client.Options{})
		n, err := a.Pin(ctx, client.Chain(p), "x", 0)
		r.must(err)
		if n.Chunks != 8 || r.pinned() != 8*size {
			t.Errorf("pinned %+v, %d bytes", n, r.pinned())
		}
		_, err = a.Pin(ctx, client.Chain(p), "x", 0) // again: no chunk twice
		r.must(err)
		_, err = b.Pin(ctx, client.Chain(chain(1, 2)), "x", 0)
		r.must(err)
		// The name is good on every connection.
		if n, err := b.Unpin(ctx, "x"); err != nil || n != 10 {
			t.Errorf("unpin: %d, %v", n, err)
		}
		if n, err := b.Unpin(ctx, "x"); err != nil || n != 0 || r.pinned() != 0 {
			t.Errorf("unpin again: %d, %v, %d bytes", n, err, r.pinned())
		}
		_, err = a.Pin(ctx, client.Chain(p), "short", 20*time.Second)
		r.must(err)
		r.after(20*time.Second, "the pin expires", func() bool { return r.pinned() == 0 })

		j, err := a.Prefetch(ctx, client.Chain(p), client.PrefetchOptions{Pin: true, LookupID: "job"})
		r.must(err)
		r.must(j.Release(ctx))
		if r.pinned() != 8*size {
			t.Errorf("%d bytes are pinned by the job", r.pinned())
		}
		a.Close()
		r.until("pins end with their connection", func() bool { return r.pinned() == 0 })

		raw := r.greet(0)
		raw.refused(wire.CodeBadRequest, wire.OpPin, &wire.PinRequest{Chain: raw.chain(p)})
		raw.refused(wire.CodeBadRequest, wire.OpPrefetch, &wire.PrefetchRequest{Chain: raw.chain(p), Flags: wire.PrefetchPin})
		for i := range 1024 {
			raw.do(wire.OpPin, &wire.PinRequest{Chain: raw.chain(p), LookupID: fmt.Sprint(i)}, &wire.PinReply{})
		}
		raw.refused(wire.CodeOverBudget, wire.OpPin, &wire.PinRequest{Chain: raw.chain(p), LookupID: "one more"})
	})
}

// What a job brings up is pinned as it comes up, not when all is there.
func TestPinAsItComesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := chain(1, 4)
		last, open := p.Key(3), make(chan struct{})
		r := newRig(t, options{hook: func(c tierfault.Call) tierfault.Fault {
			if c.Op == tierfault.Get && c.Keys[0] == last {
				return tierfault.Fault{Until: open}
			}
			return tierfault.Fault{}
		}})
		defer close(open)
		r.onDisk(p, 0, 4)
		c := r.greet(0)
		var m wire.PrefetchReply
		c.do(wire.OpPrefetch, &wire.PrefetchRequest{Chain: c.chain(p), Flags: wire.PrefetchPin, LookupID: "x"}, &m)
		c.do(wire.OpWait, &wire.WaitRequest{Job: m.Job, MinTokens: 3 * tokens, Deadline: wire.Deadline{Given: true, Millis: 1 << 30}}, &wire.JobState{})
		c.do(wire.OpRelease, &wire.IDRequest{ID: m.Job}, &wire.ReleaseReply{})
		if r.pinned() != 3*size {
			t.Errorf("%d bytes are pinned", r.pinned())
		}
	})
}

func TestDelete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, options{})
		ctx := t.Context()
		c := r.dial(client.Options{})
		p := chain(1, 8)
		r.store(p, 0, 8)
		j, err := c.Prefetch(ctx, client.Chain(p), client.PrefetchOptions{})
		r.must(err)
		if n, err := c.DeletePrompt(ctx, alone(p.Hashes[6], p.Hashes[7], key.Hash{9})); err != nil || n != 2 {
			t.Errorf("delete chunks: %d, %v", n, err)
		}
		tail := *p
		tail.Skip = 4
		if n, err := c.DeletePrompt(ctx, client.Chain(&tail)); err != nil || n != 2 {
			t.Errorf("delete chunks 4 and following: %d, %v", n, err)
		}
		if n, err := c.DeleteSpace(ctx, c.Space()); err != nil || n != 4 {
			t.Errorf("delete space: %d, %v", n, err)
		}
		if m, err := c.Lookup(ctx, client.Chain(p), 0); err != nil || m.Total.Chunks != 0 {
			t.Errorf("still there: %+v, %v", m, err)
		}
		got, err := c.Get(ctx, j.Prompt(), client.GetOptions{First: 1})
		if err != nil || len(got) != 7 {
			t.Fatalf("%d chunks under the lease, %v", len(got), err)
		}
		for i := range 8 { // the lease outlives the delete
			b, err := j.Chunk(ctx, i)
			r.must(err)
			r.must(tiertest.CheckPayload(p.Key(i), b))
			if i > 0 {
				r.must(tiertest.CheckPayload(p.Key(i), got[i-1].Bytes))
			}
		}
		r.must(j.Release(ctx))
		if b := r.arena.Stats().Blocks; b != 0 {
			t.Errorf("%d blocks are left", b)
		}
	})
}

func TestFlush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := chain(1, 6)
		r := newRig(t, options{hook: tierfault.OnKey(tierfault.Put, p.Key(3), tierfault.Fault{Err: tier.ErrOff})})
		ctx := t.Context()
		c := r.dial(client.Options{})
		r.must(put(ctx, c, p, 0, 6))
		f, err := c.Flush(ctx, true)
		r.must(err)
		if f.Chunks != 5 || f.Bytes != 5*size || len(f.Left) != 1 || f.Left[0].Reason != "tier_off" || f.Left[0].Chunks != 1 {
			t.Errorf("flushed: %+v", f)
		}
		if r.disk.Syncs() != 1 {
			t.Error("durable, and not synced")
		}
		if f, err = c.Flush(ctx, false); err != nil || f.Chunks != 0 || len(f.Left) != 1 || f.Left[0].Reason != "dropped_before" || f.Left[0].Chunks != 1 || f.Left[0].Bytes != size {
			t.Errorf("flushed again: %+v, %v", f, err)
		}
	})
}

func TestFlushAfterClear(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, options{})
		c := r.dial(client.Options{})
		r.must(put(t.Context(), c, chain(1, 3), 0, 3))
		_, err := c.Flush(t.Context(), false)
		r.must(err)
		_, err = r.tiers.Remover.Clear(t.Context(), tier.Of(tier.Disk))
		r.must(err)
		f, err := c.Flush(t.Context(), false)
		if r.must(err); len(f.Left) != 1 || f.Left[0] != (client.Leftover{Reason: "cleared", Chunks: 3, Bytes: 3 * size}) {
			t.Errorf("flushed: %+v", f)
		}
	})
}

func TestFlushTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		open := make(chan struct{})
		r := newRig(t, options{hook: tierfault.On(tierfault.Put, tierfault.Fault{Until: open})})
		defer close(open)
		c := r.greet(0)
		r.store(chain(1, 1), 0, 1)
		r.takes(20*time.Second, "a flush in vain", func() {
			c.refused(wire.CodeTimeout, wire.OpFlush, &wire.FlushRequest{Deadline: wire.Within(20 * time.Second)})
		})
		long := c.send(wire.OpFlush, &wire.FlushRequest{})
		c.ping()
		go r.stop() // the daemon stops: what waits is told
		if f := c.take(long); f.Code != wire.CodeClosed {
			t.Errorf("at the end: %s", f.Code)
		}
		c.ended()
	})
}

func TestStats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r *rig
		r = newRig(t, options{Options: server.Options{Stats: func(wire.Rights) ([]byte, error) { return json.Marshal(r.server.Stats()) }}})
		c := r.dial(client.Options{})
		r.must(put(t.Context(), c, chain(1, 3), 0, 3))
		raw, err := c.Stats(t.Context())
		r.must(err)
		var s server.Stats
		if err := json.Unmarshal(raw, &struct {
			Chunks *uint64 `json:"stored_chunks"`
			Bytes  *uint64 `json:"stored_bytes"`
		}{&s.StoredChunks, &s.StoredBytes}); err != nil || s.StoredChunks != 3 || s.StoredBytes != 3*size {
			t.Errorf("%s: %v", raw, err)
		}
	})
}

// A get waits for the chunks that have to come up, in the meantime others are
// answered.
func TestGetFromBelow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hook, open := gate()
		r := newRig(t, options{hook: hook})
		p := chain(1, 6)
		r.onDisk(p, 0, 6)
		c := r.greet(0)
		var got wire.GetReply
		r.takes(20*time.Second, "a get in vain", func() {
			c.do(wire.OpGet, &wire.GetRequest{Chain: c.chain(p), Deadline: wire.Within(20 * time.Second)}, &got)
		})
		if got.Chunks.Len() != 0 {
			t.Errorf("%d chunks came through a closed gate", got.Chunks.Len())
		}
		id := c.send(wire.OpGet, &wire.GetRequest{Chain: c.chain(p), MaxChunks: 5})
		c.ping()
		close(open)
		c.await(id, &got)
		if got.Chunks.Len() != 5 {
			t.Fatalf("%d chunks", got.Chunks.Len())
		}
		for i := range 5 {
			r.must(tiertest.CheckPayload(p.Key(i), got.Payloads[i*size:][:size]))
		}
	})
}

// Reserve says which chunks are there and which ones others are filling.
func TestReserve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, options{capacity: 1 * mib})
		p := chain(1, 4)
		r.store(p, 0, 1)
		wants := wire.FeatureArena | wire.FeatureStaging
		a, b := r.greet(wants), r.greet(wants)
		one := a.reserve(chain(1, 2))
		two := b.reserve(p)
		var grants []wire.Code
		for i := range two.Slots.Len() {
			grants = append(grants, two.Slots.At(i).Code)
		}
		if want := []wire.Code{wire.CodeExists, wire.CodePending, wire.CodeOK, wire.CodeOK}; fmt.Sprint(grants) != fmt.Sprint(want) {
			t.Errorf("granted %v, want %v", grants, want)
		}
		a.do(wire.OpAbort, &wire.FillRequest{Fill: one.Fill}, wire.EmptyReply{})
		three := b.reserve(chain(1, 2))
		if three.Slots.At(1).Code != wire.CodeOK {
			t.Error("an aborted chunk is still pending")
		}
		var stored wire.StoreReply
		b.do(wire.OpCommit, &wire.FillRequest{Fill: two.Fill}, &stored)
		if stored.Results.Len() != 4 || stored.Results.At(0).Code != wire.CodeNotReserved || stored.Results.At(3).Code != wire.CodeOK {
			t.Errorf("committed: %v", stored.Results)
		}
		b.do(wire.OpCommit, &wire.FillRequest{Fill: three.Fill, First: 1, Count: 1}, &stored)

		// What does not fit is cut short, or refused.
		long := wire.ReserveRequest{Chain: b.chain(chain(2, 100)), Sizes: wire.ViewU32s([]uint32{size})}
		var m wire.ReserveReply
		b.do(wire.OpReserve, &long, &m)
		if n := m.Slots.Len(); n == 0 || n >= 100 || m.Code != wire.CodeNoSpace && m.Code != wire.CodeOverBudget {
			t.Errorf("%d slots, %s", n, m.Code)
		}
		b.do(wire.OpAbort, &wire.FillRequest{Fill: m.Fill}, wire.EmptyReply{})
		long.Flags = wire.ReserveAllOrNothing
		f := b.take(b.send(wire.OpReserve, &long))
		if f.Code != wire.CodeNoSpace && f.Code != wire.CodeOverBudget {
			t.Errorf("all or nothing: %s", f.Code)
		}
		if r.leased() != 0 {
			t.Errorf("%d bytes are reserved", r.leased())
		}
	})
}

func TestStagingWindowFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, options{})
		c := r.dial(client.Options{StagingBytes: 3 * size})
		f, err := c.Reserve(t.Context(), client.Chain(chain(1, 8)), client.ReserveOptions{Size: size})
		r.must(err)
		if f.Len() != 3 || f.Reason() != client.StoppedOverBudget {
			t.Errorf("%d slots, %s", f.Len(), f.Reason())
		}
		if r.leased() != 3*size {
			t.Errorf("%d bytes are reserved", r.leased())
		}
		r.must(f.Abort(t.Context()))
		r.must(put(t.Context(), c, chain(1, 3), 0, 3))
	})
}

// A chunk that is only on disk is compared too, by its checksum.
func TestPutAgainBelow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, options{})
		p := chain(5, 2)
		r.onDisk(p, 0, 2)
		c := r.dial(client.Options{Inline: true})
		other := bytes.Clone(tiertest.Payload(p.Key(1), size))
		other[size/2] ^= 1
		got, err := c.Put(t.Context(), client.Chain(p), 0, [][]byte{tiertest.Payload(p.Key(0), size), other})
		r.must(err)
		for i, want := range []client.Stored{
			{Code: client.ResultExists, Sum: arena.Checksum(tiertest.Payload(p.Key(0), size))},
			{Code: client.ResultDiffers, Sum: arena.Checksum(tiertest.Payload(p.Key(1), size))},
		} {
			if got[i] != want {
				t.Errorf("chunk %d on disk: %+v, want %+v", i, got[i], want)
			}
		}
		if n := r.server.Stats().Differs; n != 1 {
			t.Errorf("%d are counted as different, want 1", n)
		}
	})
}
