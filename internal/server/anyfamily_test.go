package server_test

import (
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/internal/index"
	"github.com/kvstored/kvstored/key"
)

var anyFamilies = flag.Int("any.families", 40, "families of TestAnyFamily")

// family is a prompt in groups of any kinds, chunk lengths and ranks, and what of it was stored.
type family struct {
	r      *rig
	rng    *rand.Rand
	c      *client.Client
	prompt []uint32
	groups []client.Group
	ranks  []*client.Space // as the protocol names them
	kinds  index.Family
	chains [][]*key.Chain // by group and rank
	stored map[key.Key]bool
}

// newFamily is any family whose first group is full, or that has states only.
func (r *rig) newFamily(rng *rand.Rand) *family {
	f := &family{r: r, rng: rng, stored: make(map[key.Key]bool)}
	var raw []byte
	for i := range uint32(16*tokens + rng.IntN(2*tokens)) {
		f.prompt = append(f.prompt, i*7919)
		raw = binary.LittleEndian.AppendUint32(raw, f.prompt[i])
	}
	ranks, states := 1+rng.IntN(2), rng.IntN(5) == 0
	spaces := make([][]*client.Space, ranks)
	for g := range 1 + rng.IntN(4) {
		group := index.Group{Kind: index.Kind(rng.IntN(4)), Chunk: tokens << rng.IntN(3)}
		if g == 0 {
			group.Kind = index.Full
		}
		if states {
			group.Kind = index.State
		}
		if group.Kind == index.Window || group.Kind == index.Local {
			group.Tokens = 1 + rng.IntN(6*tokens)
		}
		f.kinds, f.chains = append(f.kinds, group), append(f.chains, nil)
		for rank := range ranks {
			s := space
			s.Method, s.Group, s.ChunkTokens, s.Worker, s.World = key.SHA256, string(rune('a'+g)), group.Chunk, rank, ranks
			if f.c == nil {
				f.c = r.dial(client.Options{Space: &s})
			}
			b, err := key.NewBuilder(s)
			out := new(key.Chain)
			r.must(errors.Join(err, b.TokenBytes(out, raw, key.Options{})))
			out.Alone = group.Kind != index.Full
			h, err := f.c.OpenSpace(r.t.Context(), s)
			r.must(err)
			f.chains[g], spaces[rank] = append(f.chains[g], out), append(spaces[rank], h)
		}
		f.groups = append(f.groups, client.Group{Space: spaces[0][g], Kind: client.GroupKind(group.Kind), Tokens: group.Tokens})
	}
	for _, of := range spaces[1:] {
		f.ranks = append(f.ranks, of...)
	}
	return f
}

// usable is the definition: the longest prefix of which each group has what it needs, in each rank.
func (f *family) usable() (longest int) {
	for n := f.kinds.Grid(); n <= len(f.prompt); n += f.kinds.Grid() {
		all := true
		for g, group := range f.kinds {
			from, to := group.Needs(0, n)
			for _, c := range f.chains[g] {
				for i := from; i < to; i++ {
					all = all && f.stored[c.Key(i)]
				}
			}
		}
		if all {
			longest = n
		}
	}
	return longest
}

// put stores some chunks, of a full group rather its first ones, and only on disk at times.
func (f *family) put() {
	g := f.rng.IntN(len(f.chains))
	c := f.chains[g][f.rng.IntN(len(f.chains[g]))]
	from := f.rng.IntN(c.Len())
	if !c.Alone {
		from = 0
	}
	to := from + 1 + f.rng.IntN(c.Len()-from)
	disk := f.rng.IntN(3) == 0
	for i := from; i < to; i++ {
		k := c.Key(i)
		if f.stored[k] {
			continue
		}
		if f.stored[k] = true; disk {
			f.r.onDisk(c, i, i+1)
		} else {
			f.r.store(c, i, i+1)
		}
	}
}

// configs are any that a client may send with a request.
func (f *family) configs() map[string]string {
	out := map[string]string{"session": "s"}
	for name, value := range map[string]string{
		"retain_priority": fmt.Sprint(f.rng.IntN(100)), "retain_start": fmt.Sprint(f.rng.IntN(len(f.prompt))), "retain_end": fmt.Sprint(len(f.prompt)),
		"retain_seconds": "9", "pause_seconds": "0.5", "priority": fmt.Sprint(f.rng.IntN(9)), "turn_over": "true",
	} {
		if f.rng.IntN(4) == 0 {
			out[name] = value
		}
	}
	return out
}

// ask has the prompt looked up, or prefetched, and compares how long it is with the definition.
func (f *family) ask() {
	r, want, ctx := f.r, int64(f.usable()), f.r.t.Context()
	if f.rng.IntN(2) == 0 {
		m, err := f.c.LookupWith(ctx, client.Tokens(f.prompt), client.LookupOptions{Groups: f.groups, Ranks: f.ranks, Why: f.rng.IntN(2) == 0, Lengths: f.rng.IntN(9)})
		if r.must(err); m.Grouped.Tokens != want {
			r.t.Fatalf("%+v: found %d tokens, want %d", f.kinds, m.Grouped.Tokens, want)
		}
		return
	}
	j, err := f.c.Prefetch(ctx, client.Tokens(f.prompt), client.PrefetchOptions{
		Groups: f.groups, Ranks: f.ranks, Why: true, Configs: f.configs(), Policy: client.WaitComplete, PrefillRate: uint32(f.rng.IntN(2)) * 1000,
	})
	if r.must(err); j.Match().Grouped.Tokens != want {
		r.t.Fatalf("%+v: a job finds %d tokens, want %d", f.kinds, j.Match().Grouped.Tokens, want)
	}
	_, err = j.Wait(ctx, int64(len(f.prompt)))
	r.must(err)
	r.must(j.Release(ctx))
}

// TestAnyFamily: a prompt in groups of any kinds, chunk lengths and ranks is as long as the
// definition says, whatever is stored of it, and no hint about it does harm.
func TestAnyFamily(t *testing.T) {
	for seed := range uint64(*anyFamilies) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, options{capacity: 16 * mib})
				f := r.newFamily(rand.New(rand.NewPCG(7, seed)))
				for range 40 {
					switch f.rng.IntN(4) {
					case 0, 1:
						f.put()
					case 2:
						f.ask()
					default:
						_, _ = f.c.Hint(t.Context(), client.Subject{}, f.configs()) // nothing may be known of the session
						time.Sleep(time.Duration(f.rng.IntN(2)) * time.Second)
					}
				}
				f.ask()
			})
		})
	}
}
