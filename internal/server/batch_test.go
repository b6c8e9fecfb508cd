package server_test

import (
	"math"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/key"
)

// grown is p with n more chunks that only the seed tells apart.
func grown(p *key.Chain, seed uint64, n int) *key.Chain {
	more := chain(seed, n)
	return &key.Chain{Space: p.Space, Hashes: slices.Concat(p.Hashes, more.Hashes), Tokens: slices.Concat(p.Tokens, more.Tokens)}
}

// batch asks for prompts by their chains, and for all of each.
func (c *raw) batch(req wire.BatchRequest, chains ...wire.Chain) wire.BatchReply {
	c.t.Helper()
	for _, ch := range chains {
		req.Prompts = append(req.Prompts, wire.BatchPrompt{Chain: ch})
	}
	req.Policy = wire.PolicyWaitComplete
	var m wire.BatchReply
	c.do(wire.OpBatch, &req, &m)
	return m
}

// whole waits for all of a job, and releases it.
func (c *raw) whole(job uint64) wire.JobState {
	c.t.Helper()
	var st wire.JobState
	c.do(wire.OpWait, &wire.WaitRequest{Job: job, MinTokens: math.MaxInt64}, &st)
	c.do(wire.OpRelease, &wire.IDRequest{ID: job}, &wire.ReleaseReply{})
	return st
}

func TestBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, options{})
		shared := chain(1, 4)
		r.store(shared, 0, 2)
		r.onDisk(shared, 2, 4)
		c := r.greet(0)
		chains := []wire.Chain{
			c.chain(chain(9, 1)), c.chain(grown(shared, 21, 2)),
			c.chain(&key.Chain{Hashes: make([]key.Hash, 1), Tokens: []uint32{tokens}}), // the zero hash
			c.chain(grown(shared, 22, 2)),
		}
		req := wire.BatchRequest{MaxOvertaken: 64}
		for i, ch := range chains {
			req.Prompts = append(req.Prompts, wire.BatchPrompt{Chain: ch, LookupID: []string{"", "a", "", ""}[i]})
		}
		b := c.batch(req)
		if order := b.Order.Append(nil); !slices.Equal(order, []uint32{1, 3, 0, 2}) {
			t.Errorf("order %d", order)
		}
		for i, want := range []uint32{0, 4, 0, 4} {
			if i == 2 {
				if j := b.Jobs[i]; j.Code != wire.CodeBadRequest || j.Text == "" {
					t.Errorf("the zero hash: %+v", j)
				}
				continue
			}
			if st := c.whole(b.Jobs[i].Prefetch.Job); st.Ready.Chunks != want || st.Code != wire.CodeOK {
				t.Errorf("prompt %d: %+v", i, st)
			}
		}
		_, st, err := r.dial(client.Options{}).WarmNamed(t.Context(), "a", 0, patience)
		r.must(err)
		if st.Ready.Chunks != 4 {
			t.Errorf("warmed by its name: %+v", st)
		}
		if b = c.batch(wire.BatchRequest{}); len(b.Jobs) != 0 || b.Order.Len() != 0 {
			t.Errorf("of nothing: %+v", b)
		}
		b = c.batch(wire.BatchRequest{}, chains...) // none may be overtaken
		if order := b.Order.Append(nil); !slices.Equal(order, []uint32{0, 1, 2, 3}) {
			t.Errorf("order %d", order)
		}
	})
}

func TestBatchLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, options{})
		c := r.greet(0)
		long := wire.BatchRequest{Prompts: make([]wire.BatchPrompt, 2)}
		for i := range long.Prompts {
			n := key.MaxChunks/2 + 1
			p := chain(uint64(i+1), n)
			long.Prompts[i].Chain = c.chain(p)
		}
		c.refused(wire.CodeTooLarge, wire.OpBatch, &long)
		c.refused(wire.CodeBadRequest, wire.OpBatch, bodyOf("\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01\x04"))
		pin := wire.BatchRequest{Flags: wire.PrefetchPin, Prompts: []wire.BatchPrompt{{Chain: c.chain(chain(1, 1))}}}
		var m wire.BatchReply
		if c.do(wire.OpBatch, &pin, &m); m.Jobs[0].Code != wire.CodeBadRequest || m.Order.Len() != 1 {
			t.Errorf("a pin without a name: %+v", m)
		}
		var full wire.BatchRequest
		for range 1024 {
			full.Prompts = append(full.Prompts, wire.BatchPrompt{Chain: c.chain(chain(1, 1))})
		}
		c.do(wire.OpBatch, &full, &m)
		if m.Jobs[1023].Code != wire.CodeOK {
			t.Errorf("the last of 1024: %s", m.Jobs[1023].Text)
		}
		var more wire.BatchReply
		if c.do(wire.OpBatch, &wire.BatchRequest{Prompts: full.Prompts[:1]}, &more); more.Jobs[0].Code != wire.CodeOverBudget {
			t.Errorf("one more: %+v", more.Jobs[0])
		}
		c.do(wire.OpRelease, &wire.IDRequest{ID: m.Jobs[0].Prefetch.Job}, &wire.ReleaseReply{})
		if c.do(wire.OpBatch, &wire.BatchRequest{Prompts: full.Prompts[:1]}, &more); more.Jobs[0].Code != wire.CodeOK {
			t.Errorf("one that was given back: %+v", more.Jobs[0])
		}
	})
}
