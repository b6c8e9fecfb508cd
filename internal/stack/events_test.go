package stack_test

import (
	"context"
	"sync"
	"testing"

	"github.com/kvstored/kvstored/internal/events"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

// told reads all that was noted in the log so far.
func (r *rig) told() (all []events.Change) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = r.log.Run(ctx, r.Announce) })
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
func fold(t *testing.T, changes []events.Change) map[key.Key]tier.Set {
	t.Helper()
	at := make(map[key.Key]tier.Set)
	for i, c := range changes {
		was, p := at[c.Key], tier.Place(c.Place)
		switch c.Kind {
		case events.Stored:
			at[c.Key] |= tier.Of(p)
		case events.Removed:
			at[c.Key] &^= tier.Of(p)
		default:
			clear(at)
			continue
		}
		if at[c.Key] == was {
			t.Errorf("change %d says nothing new: %+v", i, c)
		}
	}
	return at
}

// checkEvents compares what the events have told with the index.
func (r *rig) checkEvents() {
	r.t.Helper()
	at := fold(r.t, r.told())
	for k := range r.seen {
		if got := at[k]; got != r.Where(k) {
			r.t.Errorf("%s: the events say %b, the index %b", k, got, r.Where(k))
		}
	}
	now := make(map[key.Key]tier.Set)
	err := r.Contents(context.Background(), func(list []events.Change) error {
		for _, c := range list {
			now[c.Key] |= tier.Of(tier.Place(c.Place))
		}
		return nil
	})
	if err != nil {
		r.t.Error(err)
	}
	for k := range r.seen {
		if now[k] != r.Where(k) {
			r.t.Errorf("%s: a snapshot says %b, the index %b", k, now[k], r.Where(k))
		}
	}
}

func TestEventsOfOnePrompt(t *testing.T) {
	r := newRig(t, options{})
	c := r.putChain(1, 3)
	r.flush()
	var cpu, disk []events.Change
	for _, e := range r.told() {
		if tier.Place(e.Place) == tier.CPU {
			cpu = append(cpu, e)
		} else {
			disk = append(disk, e)
		}
	}
	for name, list := range map[string][]events.Change{"DRAM": cpu, "the disk": disk} {
		if len(list) != 3 {
			t.Fatalf("%d events of %s: %+v", len(list), name, list)
		}
		for _, e := range list {
			i := position(c, e.Key)
			if e.Kind != events.Stored || e.Parent != c.Parent(i) || e.Tokens != c.Tokens[i] {
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
