package server_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/internal/index"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
	"github.com/kvstored/kvstored/tier/tierfault"
	"github.com/kvstored/kvstored/tier/tiertest"
)

// allKinds is a prompt of 10 chunks in a group of each kind, of which 3, 7 and 10 are
// usable.
type allKinds struct {
	family index.Family
	chains []*key.Chain
	groups []client.Group
}

var usableEnds = []int{3, 7, 10}

func (r *rig) allKinds() (*client.Client, *allKinds) {
	r.t.Helper()
	m, c := &allKinds{family: index.Family{
		{Chunk: tokens}, {Kind: index.Window, Tokens: 2 * tokens, Chunk: tokens}, {Kind: index.Local, Tokens: 4 * tokens, Chunk: tokens}, {Kind: index.State, Chunk: tokens},
	}}, (*client.Client)(nil)
	for g, group := range m.family {
		s := space
		s.Group = fmt.Sprint("kind ", g)
		own := chainIn(s, 1, 10)
		own.Alone = g > 0
		m.chains = append(m.chains, own)
		if c == nil {
			c = r.dial(client.Options{Space: &s})
		}
		handle, err := c.OpenSpace(r.t.Context(), s)
		r.must(err)
		m.groups = append(m.groups, client.Group{Space: handle, Kind: client.GroupKind(group.Kind), Tokens: group.Tokens})
	}
	return c, m
}

// store calls put for what the usable lengths need.
func (m *allKinds) store(put func(c *key.Chain, from, to int)) {
	for g, group := range m.family {
		done := 0
		for _, n := range usableEnds {
			from, to := group.Needs(0, n*tokens)
			put(m.chains[g], max(from, done), to)
			done = to
		}
	}
}

// checkAt checks that a job has what a prefix of n chunks needs, and nothing else.
func (r *rig) checkAt(j *client.Job, m *allKinds, n int) {
	r.t.Helper()
	bytes := int64(0)
	for g, need := range j.Needs() {
		from, to := m.family[g].Needs(0, n*tokens)
		if need.First != from || need.Chunks != to-from {
			r.t.Errorf("group %d has %d chunks from %d; a prefix of %d needs %d to %d", g, need.Chunks, need.First, n, from, to)
			continue
		}
		for i := from; i < to; i++ {
			p, err := j.Piece(g, 0, i)
			r.must(err)
			if bytes += size; !slices.Equal(p, tiertest.Payload(m.chains[g].Key(i), size)) {
				r.t.Errorf("group %d, chunk %d has the bytes of another", g, i)
			}
		}
	}
	r.until("nothing else is leased", func() bool { return r.leased() == bytes })
}

// TestLostPiece: where a piece of a group of any kind cannot be had of any tier, the job ends
// at the longest usable length without it, with the pieces of that length.
func TestLostPiece(t *testing.T) {
	for place, o := range map[string]options{"DRAM": {lone: true}, "disk": {}, "remote": {far: true}} {
		for name, fault := range map[string]error{"broken": errors.New("broken"), "corrupt": tier.ErrCorrupt, "gone": tier.ErrNotFound} {
			if place != "disk" && name != "gone" {
				continue
			}
			for _, lost := range []struct{ group, chunk, want int }{
				{0, 9, 7}, {0, 5, 3}, {0, 1, 0}, {1, 8, 7}, {1, 9, 7}, {2, 8, 7}, {2, 9, 7}, {3, 9, 7}, {1, 6, 10}, {2, 4, 10},
			} {
				t.Run(fmt.Sprintf("%s/%s/chunk %d of %v", place, name, lost.chunk, index.Kind(lost.group)), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						var bad key.Key
						o := o
						o.capacity = 16 * mib
						if !o.lone {
							o.hook = func(c tierfault.Call) tierfault.Fault {
								if c.Op == tierfault.Get && c.Keys[0] == bad {
									return tierfault.Fault{Err: fault}
								}
								return tierfault.Fault{}
							}
						}
						r := newRig(t, o)
						c, m := r.allKinds()
						bad = m.chains[lost.group].Key(lost.chunk)
						if o.lone {
							m.store(r.store)
							r.must(r.hot.Delete(t.Context(), []key.Key{bad})) // the index is not told
						} else {
							m.store(r.onDisk)
						}
						j, err := c.Prefetch(t.Context(), client.Chain(m.chains[0]), client.PrefetchOptions{Groups: m.groups, Policy: client.WaitComplete})
						r.must(err)
						st, err := j.Wait(t.Context(), client.All)
						r.must(err)
						if !st.Done || int(st.Ready.Chunks) != lost.want || (st.Reason == client.Complete) != (lost.want == 10) {
							t.Errorf("%+v; want %d chunks", st, lost.want)
						}
						if lost.want > 0 {
							r.checkAt(j, m, lost.want)
						}
						r.must(j.Release(t.Context()))
					})
				})
			}
		}
	}
}
