package store_test

import (
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/kvstored/kvstored/internal/index"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
	"github.com/kvstored/kvstored/tier/tiertest"
)

// told reads all that was noted in the log so far.
func (r *rig) told() (all []index.Change) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = r.log.Run(ctx) })
	defer running.Wait()
	defer cancel()
	for at := uint64(0); len(all) < int(r.log.Stats().Noted); {
		batches, next, _, more := r.log.Read(nil, at, 1<<30)
		for _, b := range batches {
			all = append(all, b.Changes...)
		}
		if at = next; more != nil && len(all) < int(r.log.Stats().Noted) {
			<-more
		}
	}
	return all
}

// fold is what a reader of the changes takes to be there.
func fold(t *testing.T, changes []index.Change) map[key.Key]tier.Set {
	t.Helper()
	at := make(map[key.Key]tier.Set)
	for i, c := range changes {
		was, p := at[c.Key], tier.Place(c.Place)
		switch c.Kind {
		case index.Stored:
			at[c.Key] |= tier.Of(p)
		case index.Removed:
			at[c.Key] &^= tier.Of(p)
		default:
			clear(at)
			continue
		}
		if at[c.Key] == was && c.Kind == index.Stored {
			t.Errorf("change %d says nothing new: %+v", i, c)
		}
	}
	return at
}

// checkEvents compares what the events have told with the index, but for distrusted spaces,
// of which a snapshot has nothing.
func (r *rig) checkEvents() {
	r.t.Helper()
	distrusted := func(c index.Change) bool { return r.Operator.Distrusted().Has(c.Key.Space) }
	at := fold(r.t, slices.DeleteFunc(r.told(), distrusted))
	for k := range r.seen {
		if r.Operator.Distrusted().Has(k.Space) {
			continue
		}
		if got := at[k]; got != r.Where(k) {
			r.t.Errorf("%s: the events say %b, the index %b", k, got, r.Where(k))
		}
	}
	now := make(map[key.Key]tier.Set)
	err := r.Operator.Contents(context.Background(), func(list []index.Change) error {
		for _, c := range list {
			now[c.Key] |= tier.Of(tier.Place(c.Place))
		}
		return nil
	})
	if err != nil {
		r.t.Error(err)
	}
	for k := range r.seen {
		want := r.Where(k)
		if r.Operator.Distrusted().Has(k.Space) {
			want = 0
		}
		if now[k] != want {
			r.t.Errorf("%s: a snapshot says %b, the index %b", k, now[k], want)
		}
	}
}

func TestEventsOfOnePrompt(t *testing.T) {
	r := newRig(t, options{})
	c := r.putChain(1, 3)
	r.flush()
	var cpu, disk []index.Change
	for _, e := range r.told() {
		if tier.Place(e.Place) == tier.CPU {
			cpu = append(cpu, e)
		} else {
			disk = append(disk, e)
		}
	}
	for name, list := range map[string][]index.Change{"DRAM": cpu, "the disk": disk} {
		if len(list) != 3 {
			t.Fatalf("%d events of %s: %+v", len(list), name, list)
		}
		for _, e := range list {
			i := position(c, e.Key)
			if e.Kind != index.Stored || e.Parent != c.Parent(i) || e.Tokens != c.Tokens[i] {
				t.Errorf("%s, chunk %d: %+v", name, i, e)
			}
		}
	}
}

func position(c *key.Chain, k key.Key) int {
	for i := range c.Len() {
		if c.Key(i) == k {
			return i
		}
	}
	return -1
}

// TestContentsInOrder: prompts of two spaces that branch off from each other come with
// each chunk before those that stand on it, and once for each tier.
func TestContentsInOrder(t *testing.T) {
	r := newRig(t, options{})
	want := make(map[key.Key]key.Hash) // and its parent
	for s := range byte(2) {
		base := tiertest.Chain(1, 6)
		for i := range 5 {
			c := tiertest.Chain(uint64(10+i), 6)
			c.Space, c.Chained = key.SpaceID{1 + s}, false
			copy(c.Hashes, base.Hashes[:i+1])
			r.put(c, i, c.Len(), size)
			for at := range c.Len() {
				want[c.Key(at)] = c.Parent(at)
			}
		}
	}
	r.flush()
	told := make(map[key.Key]tier.Set)
	err := r.Operator.Contents(t.Context(), func(list []index.Change) error {
		for _, c := range list {
			parent, is := want[c.Key]
			above := key.Key{Space: c.Key.Space, Hash: parent}
			if !is || c.Parent != parent || parent != (key.Hash{}) && told[above] == 0 || told[c.Key].Has(tier.Place(c.Place)) {
				t.Errorf("%+v, which stands on %x", c, parent)
			}
			told[c.Key] |= tier.Of(tier.Place(c.Place))
		}
		return nil
	})
	if err != nil || len(told) != len(want) {
		t.Fatalf("%d chunks of %d: %v", len(told), len(want), err)
	}
	for k, at := range told {
		if at != r.Where(k) {
			t.Errorf("%s is in %b, and told of in %b", k, r.Where(k), at)
		}
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.Operator.Contents(gone, func([]index.Change) error { return nil }); err == nil {
		t.Error("it goes on though nobody waits for it")
	}
}
