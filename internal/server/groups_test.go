package server_test

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
	"github.com/kvstored/kvstored/tier/tierfault"
	"github.com/kvstored/kvstored/tier/tiertest"
)

// hybridModel is a prompt of n chunks in the spaces of a full group, one with a
// window of two chunks, and one with states, each for so many ranks.
type hybridModel struct {
	chains [3][]*key.Chain // by group and rank
	groups []client.Group
	ranks  []*client.Space
}

var hybridKinds = [3]client.Group{{Kind: client.FullGroup}, {Kind: client.WindowGroup, Tokens: 2 * tokens}, {Kind: client.StateGroup}}

func (r *rig) hybrid(n, ranks int) (*client.Client, *hybridModel) {
	r.t.Helper()
	m := new(hybridModel)
	var c *client.Client
	for rank := range ranks {
		for g, group := range hybridKinds {
			s := space
			s.World, s.Worker, s.Group = ranks, rank, string("fws"[g])
			chain := chainIn(s, 1, n)
			chain.Alone = g > 0
			m.chains[g] = append(m.chains[g], chain)
			if c == nil {
				c = r.dial(client.Options{Space: &s})
			}
			handle, err := c.OpenSpace(r.t.Context(), s)
			r.must(err)
			if rank > 0 {
				m.ranks = append(m.ranks, handle)
				continue
			}
			group.Space = handle
			m.groups = append(m.groups, group)
		}
	}
	return c, m
}

// put stores, by put, what the usable lengths of the model need: all full chunks, and
// the windows and states of each of the ends.
func (m *hybridModel) put(put func(c *key.Chain, from, to int), ends ...int) {
	for rank, c := range m.chains[0] {
		put(c, 0, c.Len())
		for _, n := range ends {
			put(m.chains[1][rank], n-2, n)
			put(m.chains[2][rank], n-1, n)
		}
	}
}

// want is the pieces that n chunks need, of so many ranks.
func piecesAt(n, ranks int) int64 { return int64(ranks * (n + min(n, 2) + 1)) }

// Only the chunks that one length needs are found, leased, pinned and read.
func TestGroups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		read := make(map[key.Key]bool)
		r := newRig(t, options{capacity: 16 * mib, hook: func(c tierfault.Call) tierfault.Fault {
			if c.Op == tierfault.Get {
				mu.Lock()
				read[c.Keys[0]] = true
				mu.Unlock()
			}
			return tierfault.Fault{}
		}})
		c, m := r.hybrid(10, 2)
		m.put(r.onDisk, 3, 7)
		ctx, prompt := t.Context(), client.Chain(m.chains[0][0])
		apart := *m.chains[0][0]
		apart.Alone = true // as of an engine that does not say which chunk follows which
		found, err := c.LookupWith(ctx, client.Chain(&apart), client.LookupOptions{Groups: m.groups, Ranks: m.ranks, Lengths: 4, Why: true})
		r.must(err)
		if g := found.Grouped; g.Tokens != 7*tokens || !slices.Equal(g.Lengths, []uint32{7 * tokens, 3 * tokens}) {
			t.Errorf("of chunks that stand alone: %+v", g)
		}
		found, err = c.LookupWith(ctx, prompt, client.LookupOptions{Groups: m.groups, Ranks: m.ranks, Lengths: 4, Why: true})
		r.must(err)
		g := found.Grouped
		if !slices.Equal(g.Lengths, []uint32{7 * tokens, 3 * tokens}) {
			t.Errorf("usable are %d", g.Lengths)
		}
		if found.Total.Chunks != 7 || found.Tiers[1].Chunks != 7 || g.Tokens != 7*tokens || g.Run != 10*tokens || g.Lacks != 0b110 {
			t.Fatalf("found %+v, %+v", found, g)
		}
		for i, want := range [][2]int{{0, 7}, {5, 2}, {6, 1}} {
			if n := g.Needs[i]; n.First != want[0] || n.Chunks != want[1] || n.Tiers[1] != want[1] {
				t.Errorf("group %d needs %+v; want %d", i, n, want)
			}
		}
		for _, name := range []string{"from disk", "all in DRAM"} {
			j, err := c.Prefetch(ctx, prompt, client.PrefetchOptions{Groups: m.groups, Ranks: m.ranks, Pin: true, LookupID: "x"})
			r.must(err)
			st, err := j.Wait(ctx, client.All)
			r.must(err)
			if st.Reason != client.Complete || st.Ready.Chunks != 7 || st.Ready.Tokens != 7*tokens {
				t.Errorf("%s: %+v", name, st)
			}
			if leased, pinned := r.leased(), r.pinned(); leased != piecesAt(7, 2)*size || pinned != leased {
				t.Errorf("%s: %d bytes are leased, %d pinned; want %d", name, leased, pinned, piecesAt(7, 2)*size)
			}
			r.checkPieces(j, m)
			r.must(j.Release(ctx))
			_, err = c.Unpin(ctx, "x")
			r.must(err)
		}
		mu.Lock()
		defer mu.Unlock()
		if int64(len(read)) != piecesAt(7, 2) {
			t.Errorf("%d chunks were read from disk; want %d", len(read), piecesAt(7, 2))
		}
	})
}

// checkPieces checks the bytes of all that a job has.
func (r *rig) checkPieces(j *client.Job, m *hybridModel) {
	r.t.Helper()
	for g, need := range j.Needs() {
		for i := need.First; i < need.First+need.Chunks; i++ {
			for rank, c := range m.chains[g] {
				p, err := j.Piece(g, rank, i)
				r.must(err)
				if !bytes.Equal(p, tiertest.Payload(c.Key(i), len(p))) {
					r.t.Errorf("group %d, rank %d, chunk %d has the bytes of another", g, rank, i)
				}
			}
		}
	}
}

// A job that loses a piece of any group ends at the largest usable length before it, with
// the pieces of that one only.
func TestGroupsLost(t *testing.T) {
	broken, corrupt, hang := tierfault.Fault{Err: errors.New("broken")}, tierfault.Fault{Err: tier.ErrCorrupt}, tierfault.Fault{Hang: true}
	for name, tc := range map[string]struct {
		group, rank, chunk int
		fault              tierfault.Fault
		hot                bool // what 3 needs is in DRAM
		policy             client.WaitPolicy
		want               int
		reason             client.Reason
	}{
		"a full chunk behind 7":  {0, 0, 8, broken, false, client.WaitComplete, 7, client.StoppedFailed},
		"a full chunk before 7":  {0, 1, 6, broken, false, client.WaitComplete, 3, client.StoppedFailed},
		"the first chunk":        {0, 0, 0, broken, false, client.WaitComplete, 0, client.StoppedFailed},
		"a window":               {1, 1, 8, broken, false, client.WaitComplete, 7, client.StoppedFailed},
		"a corrupt window":       {1, 0, 9, corrupt, false, client.WaitComplete, 7, client.StoppedCorrupt},
		"a state":                {2, 0, 9, broken, false, client.WaitComplete, 7, client.StoppedFailed},
		"a state comes too late": {2, 1, 9, hang, true, client.BestEffort, 3, client.StoppedDeadline},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var bad key.Key
				r := newRig(t, options{capacity: 16 * mib, hook: func(c tierfault.Call) tierfault.Fault {
					if c.Op == tierfault.Get && c.Keys[0] == bad {
						return tc.fault
					}
					return tierfault.Fault{}
				}})
				c, m := r.hybrid(10, 2)
				bad = m.chains[tc.group][tc.rank].Key(tc.chunk)
				m.put(r.onDisk, 3, 7, 10)
				if tc.hot {
					r.warmUp(c, m, 3)
				}
				j, err := c.Prefetch(t.Context(), client.Chain(m.chains[0][0]), client.PrefetchOptions{Groups: m.groups, Ranks: m.ranks, Policy: tc.policy})
				r.must(err)
				st, err := j.Wait(t.Context(), client.All)
				r.must(err)
				if !st.Done || st.Reason != tc.reason || int(st.Ready.Chunks) != tc.want {
					t.Errorf("%+v; want %d chunks, %v", st, tc.want, tc.reason)
				}
				want := piecesAt(tc.want, 2) * size
				if tc.want == 0 {
					want = 0
				}
				r.until("only what that length needs is leased", func() bool { return r.leased() == want })
				r.checkPieces(j, m)
				r.must(j.Release(t.Context()))
				if r.leased() != 0 {
					t.Errorf("%d bytes are leased", r.leased())
				}
				late := uint64(0)
				for _, lost := range r.server.Stats().Lost {
					late += lost.Tokens
				}
				if want := uint64((10 - tc.want) * tokens); (tc.reason == client.StoppedDeadline) != (late == want) {
					t.Errorf("%d tokens were lost because they came late", late)
				}
			})
		})
	}
}

// Lengths are those of a hybrid model, in a lookup or a prefetch, and not too many.
func TestLengthsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, options{})
		c := r.greet(wire.FeatureArena)
		ch := c.chain(chain(1, 4))
		groups := wire.Groups(nil).Add(wire.Group{Space: ch.Space})
		c.refused(wire.CodeBadRequest, wire.OpLookup, &wire.LookupRequest{Chain: ch, Shared: wire.Shared{Lengths: 1}})
		c.refused(wire.CodeBadRequest, wire.OpPrefetch, &wire.PrefetchRequest{Chain: ch, Shared: wire.Shared{Lengths: 1}})
		c.refused(wire.CodeBadRequest, wire.OpLookup, &wire.LookupRequest{Chain: ch, Shared: wire.Shared{Groups: groups, Lengths: wire.MaxLengths + 1}})
		c.refused(wire.CodeBadRequest, wire.OpBatch, &wire.BatchRequest{Prompts: []wire.BatchPrompt{{Chain: ch}}, Shared: wire.Shared{Groups: groups, Lengths: 1}})
		var reply wire.LookupReply
		c.do(wire.OpLookup, &wire.LookupRequest{Chain: ch, Shared: wire.Shared{Groups: groups, Lengths: wire.MaxLengths}}, &reply)
		if reply.Grouped == nil || reply.Grouped.Lengths.Len() != 0 {
			t.Errorf("%+v", reply.Grouped)
		}
	})
}

// warmUp has in DRAM what n chunks need.
func (r *rig) warmUp(c *client.Client, m *hybridModel, n int) {
	r.t.Helper()
	short := *m.chains[0][0]
	short.Hashes, short.Tokens = short.Hashes[:n], short.Tokens[:n]
	j, err := c.Prefetch(r.t.Context(), client.Chain(&short), client.PrefetchOptions{Groups: m.groups, Ranks: m.ranks, Policy: client.WaitComplete})
	r.must(err)
	st, err := j.Wait(r.t.Context(), client.All)
	r.must(err)
	if int(st.Ready.Chunks) != n {
		r.t.Fatalf("%+v; want %d", st, n)
	}
	r.must(j.Release(r.t.Context()))
}

// Each thing that is wrong with groups has an error of its own, and costs nothing.
func TestGroupsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, options{})
		c, m := r.hybrid(4, 2)
		other, err := c.OpenSpace(t.Context(), func() key.Space { s := space; s.Group, s.ChunkTokens = "odd", 3; return s }())
		r.must(err)
		salted, err := c.OpenSpace(t.Context(), func() key.Space { s := space; s.Group, s.Method = "xxh", key.XXH64; return s }())
		r.must(err)
		full, window, state := m.groups[0], m.groups[1], m.groups[2]
		with := func(g client.Group, change func(*client.Group)) client.Group { change(&g); return g }
		for name, tc := range map[string]struct {
			groups []client.Group
			ranks  []*client.Space
			want   string
		}{
			"no full one":          {[]client.Group{with(full, func(g *client.Group) { g.Kind = client.StateGroup }), window}, nil, "put a full one there"},
			"not the chain's":      {[]client.Group{window, full}, nil, "not in that of the chain"},
			"named twice":          {[]client.Group{full, window, with(state, func(g *client.Group) { g.Space = window.Space })}, nil, "named twice"},
			"window of 0":          {[]client.Group{full, with(window, func(g *client.Group) { g.Tokens = 0 })}, nil, "a window of 0 tokens"},
			"state with tokens":    {[]client.Group{full, with(state, func(g *client.Group) { g.Tokens = 5 })}, nil, "only a window"},
			"unknown kind":         {[]client.Group{full, with(state, func(g *client.Group) { g.Kind = 9 })}, nil, "kind 9 is unknown"},
			"lengths":              {[]client.Group{full, with(state, func(g *client.Group) { g.Space = other })}, nil, "send the tokens"},
			"another method":       {[]client.Group{full, with(state, func(g *client.Group) { g.Space = salted })}, nil, "method and salt"},
			"ranks of some groups": {[]client.Group{full, window}, m.ranks, "3 ranks for 2 groups"},
		} {
			_, err := c.LookupWith(t.Context(), client.Chain(m.chains[0][0]), client.LookupOptions{Groups: tc.groups, Ranks: tc.ranks, Why: true})
			if err == nil || !strings.Contains(err.Error(), tc.want) || !errors.Is(err, client.ErrBadRequest) {
				t.Errorf("%s: lookup: %v; want %q", name, err, tc.want)
			}
			if _, err := c.Prefetch(t.Context(), client.Chain(m.chains[0][0]), client.PrefetchOptions{Groups: tc.groups, Ranks: tc.ranks}); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s: prefetch: %v; want %q", name, err, tc.want)
			}
		}
		if r.leased() != 0 {
			t.Errorf("%d bytes are leased", r.leased())
		}
	})
}

// addGroup opens the space of one more group.
func (c *raw) addGroup(to wire.Groups, s key.Space, group client.Group) wire.Groups {
	c.t.Helper()
	var m wire.OpenSpaceReply
	c.do(wire.OpOpenSpace, &wire.OpenSpaceRequest{Space: s}, &m)
	return to.Add(wire.Group{Space: m.Space.Handle, Kind: group.Kind, Tokens: uint32(group.Tokens)})
}

// checkSums compares the checksums of the pieces that a state has with what was stored, of
// one rank.
func (c *raw) checkSums(st *wire.JobState, chains [3]*key.Chain) {
	c.t.Helper()
	at := 0
	for g := range st.Needs.Len() {
		need := st.Needs.At(g)
		for i := range int(need.Chunks) {
			ref, k := st.Refs.At(at), chains[g].Key(int(need.First)+i)
			if ref.Sum != arena.Checksum(tiertest.Payload(k, int(ref.Length))) {
				c.t.Errorf("group %d, chunk %d has the bytes of another", g, int(need.First)+i)
			}
			at++
		}
	}
	if at == 0 || at != st.Refs.Len() {
		c.t.Errorf("%d pieces, %d refs", at, st.Refs.Len())
	}
}

// A batch has a job for each prompt, each of its own length.
func TestGroupsInABatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, options{capacity: 16 * mib})
		_, m := r.hybrid(10, 1)
		m.put(r.onDisk, 3, 7)
		short := *m.chains[0][0]
		short.Hashes, short.Tokens = short.Hashes[:5], short.Tokens[:5]
		c := r.greet(0)
		var groups wire.Groups
		for g, group := range m.groups {
			s := space
			s.World, s.Worker, s.Group = 1, 0, string("fws"[g])
			groups = c.addGroup(groups, s, group)
		}
		prompts := []wire.Chain{c.chain(m.chains[0][0]), c.chain(&short)}
		for i := range prompts {
			prompts[i].Space = groups.At(0).Space
		}
		b := c.batch(wire.BatchRequest{Shared: wire.Shared{Groups: groups}}, prompts...)
		for i, want := range []uint32{7, 3} {
			st := c.whole(b.Jobs[i].Prefetch.Job)
			if st.Ready.Chunks != want || st.Code != wire.CodeOK {
				t.Errorf("job %d: %+v; want %d", i, st, want)
			}
			c.checkSums(&st, [3]*key.Chain{m.chains[0][0], m.chains[1][0], m.chains[2][0]})
		}
	})
}
