package server_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
	"github.com/kvstored/kvstored/tier/tierfault"
	"github.com/kvstored/kvstored/tier/tiertest"
)

// parts are the chains of a prompt of n chunks that leaves that of m behind chunk at, by
// group.
func (m *hybridModel) parts(at, n int) (out [3]*key.Chain) {
	for g, chains := range m.chains {
		c, other := *chains[0], chainIn(space, 2, n)
		c.Hashes = append(slices.Clone(c.Hashes[:at]), other.Hashes[at:n]...)
		c.Tokens = slices.Repeat([]uint32{tokens}, n)
		out[g] = &c
	}
	return out
}

// offer stores all of a prompt that the groups want, and returns the chunks of each group
// that they do not.
func (r *rig) offer(c *client.Client, m *hybridModel, chains [3]*key.Chain) (declined [3][]int) {
	r.t.Helper()
	ctx, n := r.t.Context(), chains[0].Len()
	f, err := c.Reserve(ctx, client.Chain(chains[0]), client.ReserveOptions{Groups: m.groups, Size: size})
	r.must(err)
	if f.Len() != 3*n || f.Reason() != client.Complete {
		r.t.Fatalf("%d slots, %v; want %d", f.Len(), f.Reason(), 3*n)
	}
	for i := range f.Len() {
		if f.Status(i) == client.NotWanted {
			declined[i/n] = append(declined[i/n], i%n)
		}
		f.Write(i, tiertest.Payload(chains[i/n].Key(i%n), size))
	}
	stored, err := f.Commit(ctx)
	r.must(err)
	for i, s := range stored {
		if want := f.Status(i); want == client.Granted && s.Code != client.ResultStored || want == client.NotWanted && s.Code != client.ResultNotGranted {
			r.t.Errorf("slot %d is %v, and stored %v", i, want, s.Code)
		}
	}
	return declined
}

func (r *rig) usable(c *client.Client, m *hybridModel, chain *key.Chain) (usable, run int) {
	r.t.Helper()
	found, err := c.LookupWith(r.t.Context(), client.Chain(chain), client.LookupOptions{Groups: m.groups, Why: true})
	r.must(err)
	return int(found.Grouped.Tokens) / tokens, int(found.Grouped.Run) / tokens
}

// all but some of 0 to n.
func except(n int, some ...int) (out []int) {
	for i := range n {
		if !slices.Contains(some, i) {
			out = append(out, i)
		}
	}
	return out
}

// Of windows and states those are stored that the end of a prompt needs, and its junction.
func TestReserveGroups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, options{capacity: 16 * mib})
		c, m := r.hybrid(10, 1)
		prompt := [3]*key.Chain{m.chains[0][0], m.chains[1][0], m.chains[2][0]}
		if d := r.offer(c, m, prompt); d[0] != nil || !slices.Equal(d[1], except(10, 8, 9)) || !slices.Equal(d[2], except(10, 9)) {
			t.Fatalf("of a new prompt %v are not stored", d)
		}
		branch := m.parts(6, 12)
		if usable, run := r.usable(c, m, branch[0]); usable != 0 || run != 6 {
			t.Fatalf("%d of %d are usable; want 0 of 6: the junction", usable, run)
		}
		if d := r.offer(c, m, branch); !slices.Equal(d[1], except(12, 4, 5, 10, 11)) || !slices.Equal(d[2], except(12, 5, 11)) {
			t.Fatalf("of a prompt that parts %v are not stored", d)
		}
		third := m.parts(6, 9)
		for i := 6; i < 9; i++ {
			for g := range third {
				third[g].Hashes[i][5]++
			}
		}
		if usable, run := r.usable(c, m, third[0]); usable != 6 || run != 6 {
			t.Errorf("%d of %d are usable where prompts part", usable, run)
		}
		if d := r.offer(c, m, third); !slices.Equal(d[1], except(9, 7, 8)) || !slices.Equal(d[2], except(9, 8)) {
			t.Errorf("of a prompt that parts where all was usable %v are not stored", d)
		}
		r.readsBack(c, m, prompt, 10)
		r.readsBack(c, m, branch, 12)
	})
}

// A last chunk that is shorter is no end of a usable length, and no other prompt goes on
// from it: it takes no room. Of a model whose groups are all full it is stored.
func TestReserveGroupsShorterLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, options{capacity: 16 * mib})
		c, m := r.hybrid(10, 1)
		var prompt [3]*key.Chain
		for g := range prompt {
			own := *m.chains[g][0]
			own.Tokens = slices.Clone(own.Tokens)
			own.Tokens[9] = tokens / 2
			prompt[g] = &own
		}
		if d := r.offer(c, m, prompt); !slices.Equal(d[0], []int{9}) || !slices.Equal(d[1], except(10, 7, 8)) || !slices.Equal(d[2], except(10, 8)) {
			t.Errorf("%v are not stored", d)
		}
		r.readsBack(c, m, prompt, 9)
		full, other := m.groups[:1], m.parts(0, 3)[0]
		other.Tokens = []uint32{tokens, tokens, tokens / 2}
		f, err := c.Reserve(t.Context(), client.Chain(other), client.ReserveOptions{Groups: full, Size: size})
		r.must(err)
		if f.Len() != 3 || f.Status(2) != client.Granted {
			t.Errorf("of full groups only: %d slots, the last is %v", f.Len(), f.Status(2))
		}
		r.must(f.Abort(t.Context()))
	})
}

// readsBack checks the bytes of all that a prompt needs.
func (r *rig) readsBack(c *client.Client, m *hybridModel, chains [3]*key.Chain, n int) {
	r.t.Helper()
	own := &hybridModel{groups: m.groups}
	for g := range chains {
		own.chains[g] = []*key.Chain{chains[g]}
	}
	j, err := c.Prefetch(r.t.Context(), client.Chain(chains[0]), client.PrefetchOptions{Groups: m.groups})
	r.must(err)
	st, err := j.Wait(r.t.Context(), client.All)
	r.must(err)
	if int(st.Ready.Chunks) != n {
		r.t.Errorf("%+v; want %d chunks", st, n)
	}
	r.checkPieces(j, own)
	r.must(j.Release(r.t.Context()))
}

// A prompt that is stored in parts has its windows and states all the same: those that lie in an
// earlier part too. A chunk that is not offered has no slot.
func TestReserveGroupsInParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, options{capacity: 16 * mib})
		c, m := r.hybrid(5, 1)
		ctx, prompt := t.Context(), client.Chain(m.chains[0][0])
		for _, part := range []struct {
			first, count int
			sizes        []uint32
			groups       [][2]int // group and chunk of each slot that is granted
		}{
			{0, 4, []uint32{1, 1, 1, 1, 0, 0, 0, 1, 0, 0, 0, 0}, [][2]int{{0, 0}, {0, 1}, {0, 2}, {0, 3}, {1, 3}}},
			{4, 0, []uint32{1, 1, 1}, [][2]int{{0, 4}, {1, 4}, {2, 4}}},
		} {
			for i := range part.sizes {
				part.sizes[i] *= size
			}
			f, err := c.Reserve(ctx, prompt, client.ReserveOptions{Groups: m.groups, First: part.first, Count: part.count, Sizes: part.sizes})
			r.must(err)
			if f.Len() != len(part.groups) {
				t.Fatalf("%d slots; want %d", f.Len(), len(part.groups))
			}
			for i, at := range part.groups {
				if f.Write(i, tiertest.Payload(m.chains[at[0]][0].Key(at[1]), size)) != size {
					t.Errorf("slot %d is %v", i, f.Status(i))
				}
			}
			for i := range part.groups { // in any order
				_, err := f.CommitRange(ctx, len(part.groups)-1-i, 1, nil)
				r.must(err)
			}
		}
		r.readsBack(c, m, [3]*key.Chain{m.chains[0][0], m.chains[1][0], m.chains[2][0]}, 5)
	})
}

// A prompt that is stored in parts, some of them twice, has the junction that it had when it was
// asked for: its own chunks, stored since, are none.
func TestJunctionStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, options{capacity: 16 * mib})
		c, m := r.hybrid(10, 1)
		r.offer(c, m, [3]*key.Chain{m.chains[0][0], m.chains[1][0], m.chains[2][0]})
		for _, looks := range []bool{true, false} {
			branch := m.parts(6, 12)
			for g := range branch {
				for i := 6; i < 12 && !looks; i++ {
					branch[g].Hashes[i][6]++
				}
			}
			if looks {
				r.usable(c, m, branch[0])
			}
			f, err := c.Reserve(t.Context(), client.Chain(branch[0]), client.ReserveOptions{Groups: m.groups, Size: size, Count: 8})
			r.must(err)
			for i := range 8 {
				f.Write(i, tiertest.Payload(branch[0].Key(i), size))
			}
			_, err = f.CommitRange(t.Context(), 0, 8, nil)
			r.must(err)
			if looks { // else the windows and states of these 8 are not wanted
				r.must(f.Abort(t.Context()))
			}
			window, state := except(12, 4, 5, 10, 11), except(12, 5, 11)
			if !looks { // the first of the two has stored its junction, which is this one's too
				window, state = except(12, 10, 11), except(12, 11)
			}
			if d := r.offer(c, m, branch); !slices.Equal(d[1], window) || !slices.Equal(d[2], state) {
				t.Errorf("asked for before: %t: %v are not stored; want all but %v, %v", looks, d, window, state)
			}
		}
	})
}

// A reservation that finds no room for all full chunks grants no window; its client loses
// no slot that was granted, and an abort gives all back.
func TestReserveGroupsShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, options{capacity: 16 * mib})
		c, m := r.hybrid(10, 1)
		window := uint32(r.arena.Stats().CapacityBytes / 8)
		f, err := c.Reserve(t.Context(), client.Chain(m.chains[0][0]), client.ReserveOptions{Groups: m.groups, Sizes: []uint32{window, window, window}})
		r.must(err)
		if f.Reason() == client.Complete || f.Len() == 0 || f.Len() >= 10 {
			t.Fatalf("%d slots, %v: there is room for fewer than 10 chunks", f.Len(), f.Reason())
		}
		r.must(f.Abort(t.Context()))
		if usable, run := r.usable(c, m, m.chains[0][0]); usable != 0 || run != 0 {
			t.Errorf("%d of %d are there", usable, run)
		}
	})
}

// A reservation that can wait has nothing evicted for its windows that the disk's writer has
// no room for, though its full chunks were granted already: it is shorter.
func TestReserveGroupsLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stuck, full := chain(20, 1), make(chan struct{})
		defer close(full)
		r := newRig(t, options{capacity: mib, limits: ledger.Limits{Unwritten: size}, hook: tierfault.OnKey(tierfault.Put, stuck.Key(0), tierfault.Fault{Until: full})})
		c, m := r.hybrid(10, 1)
		held, refs := chain(21, 50), make([]tier.Ref, 50)
		r.store(held, 0, 50)
		synctest.Wait() // it is on the disk
		if n, err := r.hot.Hold(ledger.Daemon, ledger.Lease, tiertest.Keys(held, 0, 50), refs); n != 50 {
			t.Fatalf("%d are held: %v", n, err)
		}
		defer r.hot.Release(ledger.Daemon, ledger.Lease, refs)
		r.store(stuck, 0, 1)
		synctest.Wait() // it is being written
		r.store(chain(22, 3), 0, 3)
		entries := r.hot.Ledger().Stats().Entries
		f, err := c.Reserve(t.Context(), client.Chain(m.chains[0][0]), client.ReserveOptions{Groups: m.groups, Size: size, Wait: 50 * time.Millisecond})
		r.must(err)
		if f.Len() < 10 || f.Reason() == client.Complete {
			t.Errorf("%d slots, %v; want the full chunks, for which there was room", f.Len(), f.Reason())
		}
		if left := r.hot.Ledger().Stats().Entries; left != entries {
			t.Errorf("%d chunks are left of %d", left, entries)
		}
		r.must(f.Abort(t.Context()))
	})
}

// Each thing that is wrong with a reservation for groups has an error of its own.
func TestReserveGroupsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, options{})
		c, m := r.hybrid(4, 1)
		prompt := client.Chain(m.chains[0][0])
		for name, tc := range map[string]struct {
			o    client.ReserveOptions
			want string
		}{
			"sizes of some":    {client.ReserveOptions{Groups: m.groups, Sizes: []uint32{1, 1}}, "2 sizes for 12 chunks of 3 groups"},
			"nothing offered":  {client.ReserveOptions{Groups: m.groups, Sizes: []uint32{0, 0, 0}}, "none of the 12 chunks of 3 groups is offered"},
			"nothing asked":    {client.ReserveOptions{Groups: m.groups, First: 4, Size: 1}, "none of the 0 chunks"},
			"too large":        {client.ReserveOptions{Groups: m.groups, Sizes: []uint32{1, 1, 1 << 30}}, "chunk 0 of group 2 has 1073741824 bytes"},
			"0 bytes":          {client.ReserveOptions{Sizes: []uint32{0}}, "chunk 0 has no bytes"},
			"the first window": {client.ReserveOptions{Groups: m.groups[1:], Size: 1}, "not in that of the chain"},
			"twice":            {client.ReserveOptions{Groups: []client.Group{m.groups[0], m.groups[1], m.groups[1]}, Size: 1}, "named twice"},
			"window of 0":      {client.ReserveOptions{Groups: []client.Group{m.groups[0], {Space: m.groups[1].Space, Kind: client.WindowGroup}}, Size: 1}, "a window of 0 tokens"},
		} {
			f, err := c.Reserve(t.Context(), prompt, tc.o)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s: %v, %v; want %q", name, f, err, tc.want)
			}
		}
		inline := r.dial(client.Options{Space: &space, Inline: true})
		_, err := inline.Reserve(t.Context(), prompt, client.ReserveOptions{Groups: m.groups, Size: 1})
		if !errors.Is(err, client.ErrUnsupported) {
			t.Errorf("without shared memory: %v", err)
		}
		if s := fmt.Sprint(r.hot.Ledger().Stats().Filling); s != "0" {
			t.Errorf("%s chunks are reserved", s)
		}
	})
}
