package server_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier/tiertest"
)

// grained is a model whose full group has chunks of four times as many tokens as its
// window's, and twice as many as its states': a prompt of so many full chunks.
type grained struct {
	chains [3]*key.Chain
	groups []client.Group
	prompt client.Prompt // with a hash for each chunk of the window's
}

func (r *rig) grained(n int) (*client.Client, *grained) {
	r.t.Helper()
	fine := chain(9, 4*n)
	m, c := new(grained), (*client.Client)(nil)
	for g, by := range []int{4, 1, 2} {
		s := space
		s.Group, s.ChunkTokens = string("fws"[g]), by*tokens
		id, err := s.ID()
		r.must(err)
		own := &key.Chain{Space: id, Alone: g > 0}
		for i := by - 1; i < fine.Len(); i += by {
			own.Hashes, own.Tokens = append(own.Hashes, fine.Hashes[i]), append(own.Tokens, uint32(by*tokens))
		}
		m.chains[g] = own
		if c == nil {
			c = r.dial(client.Options{Space: &s})
		}
		handle, err := c.OpenSpace(r.t.Context(), s)
		r.must(err)
		kind := [...]client.Group{{Kind: client.FullGroup}, {Kind: client.WindowGroup, Tokens: 3 * tokens}, {Kind: client.StateGroup}}[g]
		kind.Space = handle
		m.groups = append(m.groups, kind)
	}
	m.prompt = client.Chain(fine)
	m.prompt.Grain = tokens
	return c, m
}

// TestGrain: groups of shorter chunks than the first one's are stored and found by the hashes
// of their own chunks.
func TestGrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, options{capacity: 16 * mib})
		c, m := r.grained(6)
		ctx := t.Context()
		half := m.chains[1].Len() / 2
		first := client.Chain(&key.Chain{Hashes: m.chains[1].Hashes[:half], Tokens: m.chains[1].Tokens[:half]})
		first.Grain = tokens
		for _, part := range []struct {
			prompt client.Prompt
			of     int
			want   [3][]int
		}{
			{first, 2, [3][]int{{0, 1, 2}, {9, 10, 11}, {5}}},
			{m.prompt, 1, [3][]int{{3, 4, 5}, {21, 22, 23}, {11}}},
		} {
			f, err := c.Reserve(ctx, part.prompt, client.ReserveOptions{Groups: m.groups, Size: size})
			r.must(err)
			var granted [3][]int
			slot := 0
			for g, own := range m.chains {
				for i := range own.Len() / part.of {
					if f.Status(slot) == client.Granted {
						granted[g] = append(granted[g], i)
					}
					f.Write(slot, tiertest.Payload(own.Key(i), size))
					slot++
				}
			}
			if slot != f.Len() || !slices.EqualFunc(granted[:], part.want[:], slices.Equal) {
				t.Fatalf("%d slots of %d; granted are %d; want %d", f.Len(), slot, granted, part.want)
			}
			_, err = f.Commit(ctx)
			r.must(err)
		}
		found, err := c.LookupWith(ctx, m.prompt, client.LookupOptions{Groups: m.groups, Lengths: 9, Why: true})
		r.must(err)
		if g := found.Grouped; !slices.Equal(g.Lengths, []uint32{24 * tokens, 12 * tokens}) || found.Total.Chunks != 6 {
			t.Fatalf("%+v of %+v", g, found)
		}
		_, err = r.tiers.Remover.Delete(ctx, tiertest.Keys(m.chains[1], 21, 22))
		r.must(err)
		j, err := c.Prefetch(ctx, m.prompt, client.PrefetchOptions{Groups: m.groups})
		r.must(err)
		st, err := j.Wait(ctx, client.All)
		r.must(err)
		if needs := j.Needs(); st.Ready.Tokens != 12*tokens || needs[1] != (client.Need{First: 9, Chunks: 3, Tiers: [3]int{3}}) {
			t.Fatalf("%+v with %+v", st, needs)
		}
		r.checkPieces(j, &hybridModel{chains: [3][]*key.Chain{{m.chains[0]}, {m.chains[1]}, {m.chains[2]}}})
		r.must(j.Release(ctx))
		raw := r.greet(0)
		var groups wire.Groups
		for g, group := range m.groups {
			s := space
			s.Group, s.ChunkTokens = string("fws"[g]), group.Space.ChunkTokens()
			groups = raw.addGroup(groups, s, group)
		}
		prompt := raw.chain(chain(9, 24))
		prompt.Space, prompt.LastTokens = groups.At(0).Space, 0
		b := raw.batch(wire.BatchRequest{Shared: wire.Shared{Groups: groups, Grain: tokens}}, prompt)
		in := raw.whole(b.Jobs[0].Prefetch.Job)
		if in.Ready.Tokens != 12*tokens || in.Needs.Len() != 3 || in.Needs.At(1).First != 9 || in.Needs.At(1).Chunks != 3 {
			t.Fatalf("in a batch: %+v", in)
		}
		raw.checkSums(&in, m.chains)
		skipped := m.prompt
		skipped.SkipChunks = 1 // of the full group
		found, err = c.LookupWith(ctx, skipped, client.LookupOptions{Groups: m.groups, Why: true})
		r.must(err)
		if found.Grouped.Tokens != 12*tokens || found.Total.Chunks != 2 || found.Grouped.Needs[1].First != 9 {
			t.Errorf("behind one chunk: %+v, %+v", found, found.Grouped)
		}
	})
}

// Each wrong grain has an error of its own.
func TestGrainRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, options{})
		c, m := r.grained(2)
		for name, tc := range map[string]struct {
			change func(*client.Prompt, *[]client.Group)
			want   string
		}{
			"of no groups":   {func(_ *client.Prompt, g *[]client.Group) { *g = nil }, "without groups"},
			"no divisor":     {func(p *client.Prompt, _ *[]client.Group) { *p = withGrain(3 * tokens) }, "it must divide the chunks"},
			"of one group":   {func(p *client.Prompt, _ *[]client.Group) { *p = withGrain(2 * tokens) }, "it must divide the chunks"},
			"of tokens":      {func(p *client.Prompt, _ *[]client.Group) { *p = client.Tokens(make([]uint32, 80)); p.Grain = 16 }, "hashes that come with the request"},
			"a shorter last": {func(p *client.Prompt, _ *[]client.Group) { *p = withGrain(tokens, tokens-1) }, "all of full chunks"},
			"other lengths":  {func(p *client.Prompt, _ *[]client.Group) { p.Grain = 7 }, "other lengths than 7"},
		} {
			p, groups := m.prompt, m.groups
			tc.change(&p, &groups)
			_, err := c.LookupWith(t.Context(), p, client.LookupOptions{Groups: groups, Why: true})
			if err == nil || !strings.Contains(err.Error(), tc.want) || !errors.Is(err, client.ErrBadRequest) {
				t.Errorf("%s: %v; want %q", name, err, tc.want)
			}
		}
		if _, err := c.Reserve(t.Context(), m.prompt, client.ReserveOptions{Size: size}); !errors.Is(err, client.ErrBadRequest) {
			t.Errorf("a reservation of no groups: %v", err)
		}
		raw := r.greet(wire.FeatureArena)
		ch := raw.chain(chain(1, 4))
		ch.ID = 5
		raw.refused(wire.CodeBadRequest, wire.OpLookup, &wire.LookupRequest{Chain: ch, Shared: wire.Shared{Grain: tokens, Groups: wire.Groups(nil).Add(wire.Group{Space: ch.Space})}})
	})
}

// withGrain is a prompt of hashes of so many tokens each, the last of other, if that is said.
func withGrain(grain uint32, last ...uint32) client.Prompt {
	lengths := append(slices.Repeat([]uint32{grain}, 4), last...)
	p := client.Hashes(16, tiertest.Payload(key.Key{}, 16*len(lengths)), lengths)
	p.Grain = int(grain)
	return p
}

// TestOnlyStates: of a model without full groups the longest prompt is usable of which
// there is the state; a state that is lost makes it the next.
func TestOnlyStates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, options{capacity: 16 * mib})
		s := space
		s.Group = "s"
		c, own := r.dial(client.Options{Space: &s}), chainIn(s, 3, 10)
		own.Alone = true
		r.onDisk(own, 2, 3)
		r.onDisk(own, 6, 7)
		own.Alone = false
		ctx, groups := t.Context(), []client.Group{{Space: c.Space(), Kind: client.StateGroup}}
		found, err := c.LookupWith(ctx, client.Chain(own), client.LookupOptions{Groups: groups, Lengths: 4, Why: true})
		r.must(err)
		if !slices.Equal(found.Grouped.Lengths, []uint32{7 * tokens, 3 * tokens}) || found.Total != (client.Count{Chunks: 1, Tokens: 7 * tokens}) || found.Tiers[1] != found.Total {
			t.Errorf("%+v of %+v", found.Grouped, found)
		}
		for _, want := range []int{7, 3} {
			j, err := c.Prefetch(ctx, client.Chain(own), client.PrefetchOptions{Groups: groups, PrefillRate: 1})
			r.must(err)
			st, err := j.Wait(ctx, client.All)
			r.must(err)
			p, err := j.Piece(0, 0, want-1)
			r.must(err)
			if st.Ready != (client.Count{Chunks: 1, Tokens: uint64(want * tokens)}) || !slices.Equal(p, tiertest.Payload(own.Key(want-1), size)) {
				t.Errorf("%+v; want %d chunks", st, want)
			}
			r.must(j.Release(ctx))
			_, err = r.tiers.Remover.Delete(ctx, tiertest.Keys(own, want-1, want))
			r.must(err)
		}
		f, err := c.Reserve(ctx, client.Chain(own), client.ReserveOptions{Groups: groups, First: 9, Size: size})
		r.must(err)
		f.Write(0, tiertest.Payload(own.Key(9), size))
		_, err = f.Commit(ctx)
		r.must(err)
		if found, err = c.LookupWith(ctx, client.Chain(own), client.LookupOptions{Groups: groups, Why: true}); err != nil || found.Grouped.Tokens != 10*tokens {
			t.Errorf("%+v, %v", found.Grouped, err)
		}
		if lost := r.server.Stats().Lost; len(lost) > 0 {
			t.Errorf("%+v was lost of what was never there", lost)
		}
	})
}
