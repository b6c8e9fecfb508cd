package server_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/internal/server"
	"github.com/kvstored/kvstored/internal/server/hint"
	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
	"github.com/kvstored/kvstored/tier/tiertest"
)

// twoFull is a prompt of 64 short chunks in two full groups of so many tokens a chunk each.
func (r *rig) twoFull(chunk [2]int) (c *client.Client, groups []client.Group, chains []*key.Chain, prompt []uint32) {
	var raw []byte
	for i := range uint32(64 * tokens) {
		prompt = append(prompt, i*7919)
		raw = binary.LittleEndian.AppendUint32(raw, prompt[i])
	}
	for g := range chunk {
		s := space
		s.Method, s.Group, s.ChunkTokens = key.SHA256, string("fg"[g]), chunk[g]
		b, err := key.NewBuilder(s)
		out := new(key.Chain)
		r.must(errors.Join(err, b.TokenBytes(out, raw, key.Options{})))
		if c == nil {
			c = r.dial(client.Options{Space: &s})
		}
		h, err := c.OpenSpace(r.t.Context(), s)
		r.must(err)
		groups, chains = append(groups, client.Group{Space: h, Kind: client.FullGroup}), append(chains, out)
	}
	return c, groups, chains, prompt
}

// TestRetainOfCoarserGroups: a range of a prompt is retained in each full group, whatever its
// chunks have.
func TestRetainOfCoarserGroups(t *testing.T) {
	for name, chunk := range map[string][2]int{"coarser": {tokens, 8 * tokens}, "finer": {8 * tokens, tokens}} {
		for span, want := range map[string]struct {
			configs map[string]string
			chunks  int // of both groups
		}{
			"all":      {map[string]string{"session": "s", "retain_priority": "50"}, 64 + 8},
			"the head": {map[string]string{"session": "s", "retain_priority": "50", "retain_end": "128"}, 128/tokens + (128+8*tokens-1)/(8*tokens)},
		} {
			t.Run(name+", "+span, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					r := newRig(t, options{capacity: 16 * mib})
					c, groups, chains, prompt := r.twoFull(chunk)
					for _, chain := range chains {
						r.store(chain, 0, chain.Len())
					}
					j, err := c.Prefetch(t.Context(), client.Tokens(prompt), client.PrefetchOptions{Groups: groups, Configs: want.configs})
					r.must(err)
					if n := r.server.Stats().Retained.Chunks; int(n) != want.chunks || len(j.Faults()) > 0 {
						t.Errorf("%d chunks are retained, want %d; faults %v", n, want.chunks, j.Faults())
					}
					r.must(j.Release(t.Context()))
				})
			})
		}
	}
}

// TestRetainSomeOfCoarserGroups: where a group may retain only some of a range, as much of the
// range is retained as all groups have.
func TestRetainSomeOfCoarserGroups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limits := hint.ClaimLimits{TotalBytes: mib, UserBytes: 3 * size, Duration: time.Hour} // two of the finer, and one
		r := newRig(t, options{capacity: 16 * mib, Options: server.Options{Settings: server.Settings{Retain: limits}}})
		c, groups, chains, prompt := r.twoFull([2]int{tokens, 8 * tokens})
		for _, chain := range chains {
			r.store(chain, 0, chain.Len())
		}
		j, err := c.Prefetch(t.Context(), client.Tokens(prompt), client.PrefetchOptions{Groups: groups, Configs: map[string]string{"session": "s"}})
		r.must(err)
		r.must(j.Release(t.Context()))
		h, err := c.Hint(t.Context(), client.Subject{}, map[string]string{
			"session": "s", "retain_priority": "50", "retain_start": fmt.Sprint(7 * tokens), "retain_end": fmt.Sprint(9 * tokens),
		})
		r.must(err)
		if h.Retained.Chunks != 1 || len(h.Faults) != 1 {
			t.Errorf("%+v; want 1 of 2 chunks: the coarser chunk has one of them", h)
		}
	})
}

// TestPromoteOfCoarserGroups: the prompt of a session comes up in each full group.
func TestPromoteOfCoarserGroups(t *testing.T) {
	for name, chunk := range map[string][2]int{"coarser": {tokens, 8 * tokens}, "finer": {8 * tokens, tokens}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, options{capacity: 16 * mib})
				c, groups, chains, prompt := r.twoFull(chunk)
				j, err := c.Prefetch(t.Context(), client.Tokens(prompt), client.PrefetchOptions{Groups: groups, Configs: map[string]string{"session": "s"}})
				r.must(err)
				r.must(j.Release(t.Context()))
				for _, chain := range chains {
					r.onDisk(chain, 0, chain.Len())
				}
				_, err = c.Hint(t.Context(), client.Subject{}, map[string]string{"session": "s", "kv_hints": `{"protocol_version":"1.0","actions":[{"action_id":"a","action_type":"kv.prefetch","action_version":"1.0","payload":{"session_id":"s"}}]}`})
				r.must(err)
				r.until("both groups are in DRAM", func() bool {
					for _, chain := range chains {
						m, err := r.tiers.Lookups.Match(t.Context(), chain, tier.Of(tier.CPU))
						r.must(err)
						if m.Chunks != chain.Len() {
							return false
						}
					}
					return true
				})
			})
		})
	}
}

// TestWhyOfCoarserGroups: what is lacking may lie behind the start of the step in which the
// prompt ends.
func TestWhyOfCoarserGroups(t *testing.T) {
	for name, chunk := range map[string][2]int{"coarser": {tokens, 8 * tokens}, "finer": {8 * tokens, tokens}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, options{capacity: 16 * mib})
				c, groups, chains, prompt := r.twoFull(chunk)
				for _, chain := range chains {
					r.store(chain, 0, min(20, chain.Len()))
				}
				found, err := c.LookupWith(t.Context(), client.Tokens(prompt), client.LookupOptions{Groups: groups, Why: true})
				r.must(err)
				if found.Missing == nil || found.Missing.Code != wire.CodeNeverStored {
					t.Errorf("%+v, missing %+v; want that the rest was never stored", found.Grouped, found.Missing)
				}
			})
		})
	}
}

// TestWhyOfStates: of a model that has states only the group that lacks the last one says why,
// also where another space has it.
func TestWhyOfStates(t *testing.T) {
	for name, lacking := range map[string]int{"the first": 0, "the second": 1} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, options{capacity: 16 * mib})
				c, groups, chains, prompt := r.twoFull([2]int{tokens, tokens})
				groups[0].Kind, groups[1].Kind = client.StateGroup, client.StateGroup
				last := chains[1-lacking].Len() - 1
				r.store(chains[1-lacking], last, last+1)
				found, err := c.LookupWith(t.Context(), client.Tokens(prompt), client.LookupOptions{Groups: groups, Why: true})
				r.must(err)
				if found.Missing == nil || found.Missing.Code != wire.CodeOtherSpace {
					t.Errorf("missing %+v; want that only another space has it", found.Missing)
				}
				j, err := c.Prefetch(t.Context(), client.Tokens(prompt), client.PrefetchOptions{Groups: groups, Why: true})
				r.must(err)
				if m := j.Match().Missing; m == nil || m.Code != wire.CodeOtherSpace {
					t.Errorf("prefetch: missing %+v", m)
				}
				r.must(j.Release(t.Context()))
			})
		})
	}
}

// TestWhyOfUnequalStates: which state at the end of a prompt is lacking is told also where the
// chunks of the groups have unequal lengths: no state before the end is asked for, nor one of
// the rest of a step.
func TestWhyOfUnequalStates(t *testing.T) {
	for name, c := range map[string]struct {
		chunk [2]int
		asked int // tokens
	}{
		"the finer has gone":             {[2]int{8 * tokens, tokens}, 64 * tokens},
		"the coarser has gone":           {[2]int{tokens, 8 * tokens}, 64 * tokens},
		"the coarser has gone, a rest":   {[2]int{tokens, 8 * tokens}, 34 * tokens},
		"the finer has gone, and a rest": {[2]int{8 * tokens, tokens}, 34 * tokens},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, options{capacity: 16 * mib})
				cl, groups, chains, prompt := r.twoFull(c.chunk)
				for g, chain := range chains {
					groups[g].Kind = client.StateGroup
					last := c.asked/(8*tokens)*(8*tokens)/c.chunk[g] - 1
					r.store(chain, last, last+1)
					if g == 1 {
						_, err := r.tiers.Remover.Delete(t.Context(), tiertest.Keys(chain, last, last+1))
						r.must(err)
					}
				}
				found, err := cl.LookupWith(t.Context(), client.Tokens(prompt[:c.asked]), client.LookupOptions{Groups: groups, Why: true})
				r.must(err)
				if found.Missing == nil || found.Missing.Code != wire.CodeNotFound {
					t.Errorf("missing %+v; want that it was deleted", found.Missing)
				}
			})
		})
	}
}
