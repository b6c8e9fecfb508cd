package server_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier/tiertest"
)

// lengthsOf is a model with a window and states, whose groups have chunks of so many
// tokens, and a prompt in the space of each.
type lengthsOf struct {
	chunk  [3]int
	window int // tokens
	groups []client.Group
	chains [3]*key.Chain
}

// model opens the spaces of a model. Prompt makes the chain of a prompt in each.
func (r *rig) lengths(c *client.Client, method key.Method, chunk [3]int, prompt func(s key.Space) *key.Chain) *lengthsOf {
	r.t.Helper()
	m := &lengthsOf{chunk: chunk, window: chunk[1] + 1}
	for g, kind := range []client.GroupKind{client.FullGroup, client.WindowGroup, client.StateGroup} {
		s := space
		s.Method, s.Group, s.ChunkTokens = method, string("fws"[g]), chunk[g]
		handle, err := c.OpenSpace(r.t.Context(), s)
		r.must(err)
		m.groups = append(m.groups, client.Group{Space: handle, Kind: kind, Tokens: []int{0, m.window, 0}[g]})
		m.chains[g] = prompt(s)
		m.chains[g].Alone = g > 0
	}
	return m
}

// store stores what so many tokens need.
func (m *lengthsOf) store(r *rig, n int) {
	put := func(g, from int) {
		if first, end := from/m.chunk[g], n/m.chunk[g]; first < end {
			r.store(m.chains[g], first, end)
		}
	}
	put(0, 0)
	put(1, max(0, n-m.window))
	put(2, n-m.chunk[2])
}

// Of groups with chunks of any lengths that divide each other what is stored is found,
// whether the daemon hashes tokens, or is given the hashes of chunks or of a grain.
func TestLengthsOfGroups(t *testing.T) {
	const longest, units = 8, 6
	rng := rand.New(rand.NewPCG(38, 23))
	prompt := make([]uint32, longest*units*tokens)
	for i := range prompt {
		prompt[i] = rng.Uint32()
	}
	raw := make([]byte, 0, 4*len(prompt))
	for _, token := range prompt {
		raw = binary.LittleEndian.AppendUint32(raw, token)
	}
	hashed := func(s key.Space) *key.Chain {
		b, err := key.NewBuilder(s)
		out := new(key.Chain)
		if err = errors.Join(err, b.TokenBytes(out, raw, key.Options{})); err != nil {
			t.Fatal(err)
		}
		return out
	}
	fine := hashed(key.Space{Model: "m", World: 1, DType: "bf16", ChunkTokens: tokens, Method: key.SHA256})
	given := func(s key.Space) *key.Chain {
		id, err := s.ID()
		if err != nil {
			t.Fatal(err)
		}
		out := &key.Chain{Space: id}
		for end := s.ChunkTokens; end <= len(prompt); end += s.ChunkTokens {
			out.Hashes, out.Tokens = append(out.Hashes, fine.Hashes[end/tokens-1]), append(out.Tokens, uint32(s.ChunkTokens))
		}
		return out
	}
	grained := func(*lengthsOf) client.Prompt {
		p := client.Chain(fine)
		p.Grain = tokens
		return p
	}
	for name, form := range map[string]struct {
		method key.Method
		chain  func(key.Space) *key.Chain
		prompt func(*lengthsOf) client.Prompt
		takes  func(chunk [3]int) bool
	}{
		"sha256": {key.SHA256, hashed, func(*lengthsOf) client.Prompt { return client.Tokens(prompt) }, nil},
		"xxh64":  {key.XXH64, hashed, func(*lengthsOf) client.Prompt { return client.Tokens(prompt) }, nil},
		"grain":  {key.Given, given, grained, nil},
		"hashes": {key.Given, given, func(m *lengthsOf) client.Prompt { return client.Chain(m.chains[0]) }, func(chunk [3]int) bool {
			return chunk[0] == slices.Min(chunk[:])
		}},
	} {
		synctest.Test(t, func(t *testing.T) {
			for range 30 {
				var chunk [3]int
				for g := range chunk {
					chunk[g] = tokens << rng.IntN(4)
				}
				n := slices.Max(chunk[:]) * (1 + rng.IntN(units))
				if form.takes != nil && !form.takes(chunk) {
					continue
				}
				what := fmt.Sprintf("%s: chunks of %d, %d tokens stored", name, chunk, n)
				r := newRig(t, options{capacity: 16 * mib})
				s := space
				s.Method, s.Group, s.ChunkTokens = form.method, "f", chunk[0]
				c := r.dial(client.Options{Space: &s})
				m := r.lengths(c, form.method, chunk, form.chain)
				m.store(r, n)
				found, err := c.LookupWith(t.Context(), form.prompt(m), client.LookupOptions{Groups: m.groups, Why: true})
				if err != nil || found.Grouped.Tokens != int64(n) {
					t.Fatalf("%s: %+v, %v", what, found.Grouped, err)
				}
				if same := slices.Min(chunk[:]) == slices.Max(chunk[:]); !same && form.method != key.Given { // hashes of one length say nothing of others
					if _, err := c.LookupWith(t.Context(), client.Chain(m.chains[0]), client.LookupOptions{Groups: m.groups, Why: true}); !errors.Is(err, client.ErrBadRequest) {
						t.Fatalf("%s: hashes of the first group: %v", what, err)
					}
				}
				j, err := c.Prefetch(t.Context(), form.prompt(m), client.PrefetchOptions{Groups: m.groups})
				r.must(err)
				st, err := j.Wait(t.Context(), client.All)
				r.must(err)
				if st.Ready.Tokens != uint64(n) {
					t.Fatalf("%s: %+v", what, st)
				}
				for g, need := range j.Needs() {
					for i := need.First; i < need.First+need.Chunks; i++ {
						p, err := j.Piece(g, 0, i)
						r.must(err)
						r.must(tiertest.CheckPayload(m.chains[g].Key(i), p))
					}
				}
				r.must(j.Release(t.Context()))
			}
		})
	}
}
