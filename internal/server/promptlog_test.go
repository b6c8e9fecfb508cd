package server

import (
	"testing"

	"github.com/kvstored/kvstored/internal/index"
	"github.com/kvstored/kvstored/internal/server/hint"
	"github.com/kvstored/kvstored/internal/store"
	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/policy"
	"github.com/kvstored/kvstored/tier/tiertest"
)

// ranksOf is a prompt in so many spaces.
func ranksOf(seed uint64, ranks int) []key.Chain {
	chains := make([]key.Chain, ranks)
	for r := range chains {
		chains[r] = *tiertest.Chain(seed, 2)
		chains[r].Space = key.SpaceID{byte(r + 1)}
	}
	return chains
}

// TestChainsOfOneLengthShare: of groups whose chunks are equally long the chunks are there once,
// and are counted as often as they are there.
func TestChainsOfOneLengthShare(t *testing.T) {
	const short, long = 16, 128
	of := func(group string, chunk int) *openSpace {
		b, err := key.NewBuilder(key.Space{Model: "m", World: 1, DType: "d", Group: group, Method: key.SHA256, ChunkTokens: chunk})
		if err != nil {
			t.Fatal(err)
		}
		return &openSpace{builder: b}
	}
	asked := wire.Chain{Form: wire.FormTokens, Tokens: wire.ViewU32s(make([]uint32, 4*long))}
	chunks := []int{long, short, long, short}
	b := familyBuilder{family: &store.Family{Groups: make(index.Family, len(chunks)), Chains: make([][]key.Chain, len(chunks))}, chain: new(key.Chain), asked: &asked}
	if err := of("0", long).builder.TokenBytes(b.chain, asked.Tokens, key.Options{}); err != nil {
		t.Fatal(err)
	}
	var all []key.Chain
	for g, chunk := range chunks {
		b.family.Groups[g].Chunk = chunk
		if err := b.addChain(g, of(string("0123"[g]), chunk)); err != nil {
			t.Fatal(err)
		}
		all = append(all, b.family.Chains[g]...)
	}
	memory := func(arrays ...key.Chain) (n int) {
		for _, c := range arrays {
			n += 16*cap(c.Hashes) + 4*cap(c.Tokens)
		}
		return n
	}
	bare := chainsBytes(make([]key.Chain, cap(all)))
	if got, want := chainsBytes(all)-bare, memory(all[:2]...); got != want {
		t.Errorf("%d groups are counted as %d bytes of chunks, want %d", len(all), got, want)
	}
	two := []key.Chain{*tiertest.Chain(1, 8), *tiertest.Chain(2, 8)}
	if got, want := chainsBytes(two)-chainsBytes(make([]key.Chain, 2)), memory(two...); got != want {
		t.Errorf("two prompts of one length are counted as %d bytes of chunks, want %d", got, want)
	}
}

// TestRanksAreOneRequest: what a client says of a prompt of several ranks is
// said once, and a connection remembers as many such prompts as of one rank.
func TestRanksAreOneRequest(t *testing.T) {
	play(t, script{at: "c"}, func(t *testing.T, g *stage) {
		const ranks = 8
		says := hint.Advice{Hint: policy.Done, Measured: true, Force: true}
		for i := range maxPrompts {
			g.prompts.observe(ranksOf(uint64(100+i), ranks), false, says)
		}
		first := ranksOf(100, ranks)
		for r := range first {
			if n := g.prompts.find(&first[r]); !n.force || !n.done {
				t.Errorf("rank %d of the first of %d prompts: %+v", r, maxPrompts, n)
			}
		}
		other := first[0]
		other.Space = key.SpaceID{99}
		if n := g.prompts.find(&other); n.force || n.done {
			t.Errorf("a space that was not named: %+v", n)
		}
		kept := int64(0)
		for i := range g.prompts.list {
			kept += g.prompts.list[i].bytes()
		}
		if least := int64(maxPrompts * (ranks - 1) * len(key.SpaceID{})); kept < least || g.prompts.rankBytes != kept {
			t.Errorf("%d bytes are to be charged for ranks, %d are kept", g.prompts.rankBytes, kept)
		}
	})
}

// TestAdviceByReference: what a client says with a reference to a job is
// taken, and is no other request.
func TestAdviceByReference(t *testing.T) {
	play(t, script{at: "cc"}, func(t *testing.T, g *stage) {
		j := g.prefetch(&wire.PrefetchRequest{})
		ref := func(configs wire.Pairs) *job {
			return g.prefetch(&wire.PrefetchRequest{
				Chain: wire.Chain{Form: wire.FormRef, ID: j.id}, Shared: wire.Shared{Configs: configs},
			})
		}
		if over := ref(wire.Pairs(nil).Add("turn_over", "done").Add("store", "always").Add("priority", "?")).over; !over {
			t.Error("the job does not know that the turn is over")
		}
		if n := g.prompts.find(g.chain); !n.done || !n.force {
			t.Errorf("the connection remembers %+v", n)
		}
		if !ref(wire.Pairs(nil).Add("kv_transfer", "x")).over { // says nothing
			t.Error("what was said is forgotten")
		}
	})
}
