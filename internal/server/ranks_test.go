package server_test

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier/tierfault"
	"github.com/kvstored/kvstored/tier/tiertest"
)

// rankChains is a prompt of n chunks in the spaces of a group of so many ranks.
func rankChains(n, ranks int) (spaces []key.Space, chains []*key.Chain) {
	for i := range ranks {
		s := space
		s.World, s.Worker = ranks, i
		spaces = append(spaces, s)
		chains = append(chains, chainIn(s, 1, n))
	}
	return spaces, chains
}

// group connects as the first rank and opens the spaces of the others.
func (r *rig) group(spaces []key.Space) (*client.Client, []*client.Space) {
	r.t.Helper()
	c := r.dial(client.Options{Space: &spaces[0]})
	var others []*client.Space
	for _, s := range spaces[1:] {
		o, err := c.OpenSpace(r.t.Context(), s)
		r.must(err)
		others = append(others, o)
	}
	return c, others
}

// A chunk counts only if every rank has it, and is found where the farthest is.
func TestRanks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, options{capacity: 8 * mib})
		spaces, cs := rankChains(8, 3)
		r.store(cs[0], 0, 8)
		r.store(cs[1], 0, 4)
		r.onDisk(cs[1], 4, 7)
		r.store(cs[2], 0, 2)
		r.onDisk(cs[2], 2, 6)
		c, others := r.group(spaces)
		ctx := t.Context()

		m, err := c.LookupWith(ctx, client.Chain(cs[0]), client.LookupOptions{Ranks: others})
		r.must(err)
		if m.Total.Chunks != 6 || m.Tiers[0].Chunks != 2 || m.Tiers[1].Chunks != 4 {
			t.Errorf("matched %+v", m)
		}
		for _, name := range []string{"from disk", "all in DRAM"} {
			j, err := c.Prefetch(ctx, client.Chain(cs[0]), client.PrefetchOptions{Ranks: others, Pin: true, LookupID: "x"})
			r.must(err)
			st, err := j.Wait(ctx, client.All)
			r.must(err)
			if st.Reason != client.Complete || st.Ready.Chunks != 6 || st.Ready.Tokens != 6*tokens {
				t.Errorf("%s: %+v", name, st)
			}
			if n := r.leased(); n != 3*6*size {
				t.Errorf("%s: %d bytes are leased", name, n)
			}
			if n := r.pinned(); n != 3*6*size {
				t.Errorf("%s: %d bytes are pinned", name, n)
			}
			for i := range 6 {
				for rank := range 3 {
					p, err := j.ChunkOf(rank, i)
					r.must(err)
					r.must(tiertest.CheckPayload(cs[rank].Key(i), p))
				}
			}
			if _, err := j.ChunkOf(3, 0); !errors.Is(err, client.ErrBadRequest) {
				t.Errorf("a rank that is not there: %v", err)
			}
			if _, err := j.ChunkOf(1, 6); !errors.Is(err, client.ErrNotReady) {
				t.Errorf("a chunk that is not there: %v", err)
			}
			r.must(j.Release(ctx))
			if n := r.leased(); n != 0 {
				t.Errorf("%s: %d bytes are leased after the release", name, n)
			}
		}
		if n, err := c.Unpin(ctx, "x"); n != 18 || err != nil {
			t.Errorf("unpinned %d, %v", n, err)
		}
	})
}

// Where one rank fails the prefix ends for all, and what the others have of
// that chunk is given back.
func TestRanksEndTogether(t *testing.T) {
	for name, tc := range map[string]struct {
		rank, chunk int
		fault       tierfault.Fault
		policy      client.WaitPolicy
		reason      client.Reason
	}{
		"the second fails":        {1, 3, tierfault.Fault{Err: errors.New("broken")}, client.WaitComplete, client.StoppedFailed},
		"the last fails":          {2, 3, tierfault.Fault{Err: errors.New("broken")}, client.WaitComplete, client.StoppedFailed},
		"the second never comes":  {1, 3, tierfault.Fault{Hang: true}, client.BestEffort, client.StoppedDeadline},
		"the first fails at once": {0, 0, tierfault.Fault{Err: errors.New("broken")}, client.WaitComplete, client.StoppedFailed},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				spaces, cs := rankChains(6, 3)
				bad := cs[tc.rank].Key(tc.chunk)
				r := newRig(t, options{capacity: 8 * mib, hook: func(c tierfault.Call) tierfault.Fault {
					if c.Op == tierfault.Get && c.Keys[0] == bad {
						return tc.fault
					}
					return tierfault.Fault{}
				}})
				for _, c := range cs {
					r.onDisk(c, 0, 6)
				}
				c, others := r.group(spaces)
				j, err := c.Prefetch(t.Context(), client.Chain(cs[0]), client.PrefetchOptions{Ranks: others, Policy: tc.policy})
				r.must(err)
				if tc.fault.Hang { // all that can come has come, in whatever order
					r.until("the others are there", func() bool {
						r.must(c.Ping(t.Context())) // a push says what the job has: it hears of a load after the ledger
						n, _ := j.Ready()
						return n == tc.chunk && r.leased() == (3*6-1)*size
					})
				}
				st, err := j.Wait(t.Context(), client.All)
				r.must(err)
				if !st.Done || st.Reason != tc.reason || int(st.Ready.Chunks) != tc.chunk {
					t.Errorf("%+v; want %d chunks, %s", st, tc.chunk, tc.reason)
				}
				r.until("nothing of later chunks is leased", func() bool { return r.leased() == int64(3*tc.chunk)*size })
				r.must(j.Release(t.Context()))
			})
		})
	}
}

// The budget of one's own ends the prefix at a whole chunk.
func TestRanksOverBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, options{capacity: 8 * mib, limits: ledger.Limits{Lease: 10 * size}})
		spaces, cs := rankChains(6, 3)
		for _, c := range cs {
			for i := range 6 {
				r.onDisk(c, i, i+1)
			}
		}
		c, others := r.group(spaces)
		for _, name := range []string{"from disk", "some in DRAM", "all in DRAM"} {
			if name == "all in DRAM" {
				for i := range cs {
					p := client.Chain(cs[i])
					if i > 0 {
						p.Space = others[i-1]
					}
					_, _, err := c.Warm(t.Context(), p, 0, patience)
					r.must(err)
				}
			}
			j, err := c.Prefetch(t.Context(), client.Chain(cs[0]), client.PrefetchOptions{Ranks: others})
			r.must(err)
			st, err := j.Wait(t.Context(), client.All)
			r.must(err)
			if st.Reason != client.StoppedOverBudget || st.Ready.Chunks != 3 {
				t.Errorf("%s: %+v", name, st)
			}
			r.until("only whole chunks are leased", func() bool { return r.leased() == 9*size })
			r.must(j.Release(t.Context()))
		}
	})
}

func TestRanksRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, options{})
		c := r.greet(0)
		other := space
		other.ChunkTokens = 2 * tokens
		var s wire.OpenSpaceReply
		c.do(wire.OpOpenSpace, &wire.OpenSpaceRequest{Space: other}, &s)
		p := c.chain(chain(1, 2))
		for name, tc := range map[string]struct {
			want  wire.Code
			ranks []uint32
		}{
			"not open":          {wire.CodeUnknownSpace, []uint32{99}},
			"itself":            {wire.CodeBadRequest, []uint32{c.space}},
			"twice":             {wire.CodeBadRequest, []uint32{c.space, c.space}},
			"other chunk sizes": {wire.CodeBadRequest, []uint32{s.Space.Handle}},
		} {
			ranks := wire.ViewU32s(tc.ranks)
			part(t, name, func(t *testing.T) {
				c.t = t
				c.refused(tc.want, wire.OpPrefetch, &wire.PrefetchRequest{Chain: p, Shared: wire.Shared{Ranks: ranks}})
				c.refused(tc.want, wire.OpLookup, &wire.LookupRequest{Chain: p, Shared: wire.Shared{Ranks: ranks}})
				c.ping()
			})
		}
		c.t = t
	})
}
