package server_test

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/internal/index"
	"github.com/kvstored/kvstored/key"
)

// A user is told of the spaces that it may read, and of no others, nor of what a
// client does not say which model it is of.
func TestEventsRights(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := eventful(index.LogOptions{})
		o.Access = accepted(t, "[{uids: [12001], match: 'a-*', rights: [read, write]}, {uids: [12002], match: 'b-*', rights: [read, write]}]")
		r := newRig(t, o)
		unknown := chain(9, 1)
		unknown.Space = key.SpaceID{9}
		r.store(unknown, 0, 1)
		for uid, model := range map[uint32]string{alice: "a-1", bob: "b-1"} {
			sp := modelSpace(model)
			c, err := r.dialAs(uid, client.Options{Space: &sp})
			if err != nil {
				t.Fatal(err)
			}
			fill, err := c.Reserve(t.Context(), client.Chain(chainIn(sp, 1, 3)), client.ReserveOptions{Size: size})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := fill.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			_ = c.Close()
		}
		for uid, want := range map[uint32]map[string]int{alice: {"a-1": 3}, bob: {"b-1": 3}, 0: {"a-1": 3, "b-1": 3, "": 1}} {
			c, err := r.dialAs(uid, client.Options{})
			if err != nil {
				t.Fatal(err)
			}
			models, got := map[key.SpaceID]string{}, map[string]map[key.Hash]bool{}
			err = c.Events(t.Context(), client.EventsOptions{Snapshot: true}, func(b *client.EventBatch) error {
				for id, sp := range b.Spaces {
					models[id] = sp.Model
				}
				for _, e := range b.Events {
					m := models[e.Space]
					if got[m] == nil {
						got[m] = map[key.Hash]bool{}
					}
					got[m][e.Hash] = true
				}
				if b.Complete {
					return errEnough
				}
				return nil
			})
			if !errors.Is(err, errEnough) {
				t.Fatal(err)
			}
			for m, n := range want {
				if len(got[m]) != n {
					t.Errorf("user %d is told of %d chunks of %q, want %d", uid, len(got[m]), m, n)
				}
			}
			if len(got) != len(want) {
				t.Errorf("user %d is told of %v", uid, models)
			}
		}
	})
}
