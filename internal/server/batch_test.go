package server_test

import (
	"errors"
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

func TestBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, options{})
		shared := chain(1, 4)
		r.store(shared, 0, 2)
		r.onDisk(shared, 2, 4)
		prompts := []client.BatchPrompt{
			{Prompt: client.Chain(chain(9, 1))},
			{Prompt: client.Chain(grown(shared, 21, 2)), LookupID: "a"},
			{Prompt: client.Hashes(5, nil, nil)}, // refused here
		}
		c, ctx := r.dial(client.Options{}), t.Context()
		if _, err := c.Batch(ctx, prompts, client.BatchOptions{}); !errors.Is(err, client.ErrBadRequest) {
			t.Errorf("a prompt that is none: %v", err)
		}
		prompts[2] = client.BatchPrompt{Prompt: client.Hashes(16, make([]byte, 16), []uint32{tokens})} // the zero hash
		prompts = append(prompts, client.BatchPrompt{Prompt: client.Chain(grown(shared, 22, 2))})
		b, err := c.Batch(ctx, prompts, client.BatchOptions{PrefetchOptions: client.PrefetchOptions{Policy: client.WaitComplete}})
		r.must(err)
		if !slices.Equal(b.Order, []int{1, 3, 0, 2}) {
			t.Errorf("order %d", b.Order)
		}
		if !errors.Is(b.Errors[2], client.ErrBadRequest) || b.Jobs[2] != nil {
			t.Errorf("the zero hash: %v", b.Errors[2])
		}
		for i, want := range []uint32{0, 4, 0, 4} {
			if i == 2 {
				continue
			}
			r.must(b.Errors[i])
			st, err := b.Jobs[i].Wait(ctx, client.All)
			r.must(err)
			if st.Ready.Chunks != want || st.Reason != client.Complete {
				t.Errorf("prompt %d: %+v", i, st)
			}
			r.must(b.Jobs[i].Release(ctx))
		}
		_, st, err := c.WarmNamed(ctx, "a", 0, patience)
		r.must(err)
		if st.Ready.Chunks != 4 {
			t.Errorf("warmed by its name: %+v", st)
		}
		b, err = c.Batch(ctx, nil, client.BatchOptions{})
		if r.must(err); len(b.Jobs) != 0 || len(b.Order) != 0 {
			t.Errorf("of nothing: %+v", b)
		}
		if _, err := c.Batch(ctx, make([]client.BatchPrompt, 1025), client.BatchOptions{}); !errors.Is(err, client.ErrTooLarge) {
			t.Errorf("1025 prompts: %v", err)
		}
		b, err = c.Batch(ctx, prompts, client.BatchOptions{MaxOvertaken: -1}) // nobody may be overtaken
		if r.must(err); !slices.Equal(b.Order, []int{0, 1, 2, 3}) {
			t.Errorf("order %d", b.Order)
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
