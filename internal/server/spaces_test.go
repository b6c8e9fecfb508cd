package server_test

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/internal/server"
	"github.com/kvstored/kvstored/internal/store"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

// uses lists the spaces by id.
func (r *rig) uses() map[key.SpaceID]server.SpaceUse {
	r.t.Helper()
	list, more := r.server.Spaces(0, key.SpaceID{})
	uses := make(map[key.SpaceID]server.SpaceUse)
	for _, u := range list {
		id, err := hex.DecodeString(u.Space)
		r.must(err)
		uses[key.SpaceID(id)] = u
	}
	if more || len(uses) != len(list) {
		r.t.Errorf("a space is listed twice, or not all are: %+v", list)
	}
	return uses
}

func (r *rig) idOf(s key.Space) key.SpaceID {
	r.t.Helper()
	id, err := s.ID()
	r.must(err)
	return id
}

// A space is listed when it is open, has been, or has something stored, as what
// it was opened, but for the salt.
func TestSpacesAreListed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		front := chain(7, 3)
		front.Space = key.SpaceID{7}
		r := newRig(t, options{Options: server.Options{Fronts: map[key.SpaceID]string{front.Space: "resp", {8}: "other"}}})
		r.dial(client.Options{Inline: true})
		tenant := key.Space{
			Model: "other", Revision: "main", LoRA: "l", World: 2, Worker: 1, DType: "fp8", ChunkTokens: tokens,
			Method: key.Given, Group: "g", Salt: "secret", Tags: []key.Tag{{Name: "layout", Value: "hnd"}},
		}
		stored, id := chain(1, 4), r.idOf(tenant)
		never := chain(2, 2)
		never.Space = key.SpaceID{2}
		r.store(stored, 0, 4)
		r.store(never, 0, 2)
		r.store(front, 0, 3)
		a, b := r.dial(client.Options{Space: &tenant}), r.dial(client.Options{Space: &tenant})
		_, err := b.OpenSpace(t.Context(), tenant) // again: it is one connection all the same
		r.must(err)

		uses := r.uses()
		want := map[key.SpaceID]server.SpaceUse{
			stored.Space: {Chunks: 4, HotBytes: 4 * size, Connections: 1, Opened: &server.Opened{Model: space.Model, World: space.World, DType: space.DType, ChunkTokens: tokens, Method: string(space.Method)}},
			never.Space:  {Chunks: 2, HotBytes: 2 * size},
			front.Space:  {Chunks: 3, HotBytes: 3 * size, Front: "resp"},
			id: {Connections: 2, Opened: &server.Opened{
				Model: "other", Revision: "main", LoRA: "l", World: 2, Worker: 1, DType: "fp8", ChunkTokens: tokens,
				Method: string(key.Given), Group: "g", Salted: true, Tags: map[string]string{"layout": "hnd"},
			}},
		}
		for id, w := range want {
			u := uses[id]
			if u.Chunks != w.Chunks || u.HotBytes != w.HotBytes || u.Connections != w.Connections || u.Front != w.Front || fmt.Sprintf("%+v", u.Opened) != fmt.Sprintf("%+v", w.Opened) {
				t.Errorf("%x: %+v, %+v, want %+v, %+v", id, u, u.Opened, w, w.Opened)
			}
		}
		if len(uses) != len(want) {
			t.Errorf("%d spaces, want %d: %+v", len(uses), len(want), uses)
		}

		r.must(a.Close())
		r.until("one connection has it open", func() bool { return r.uses()[id].Connections == 1 })
		r.must(b.Close())
		r.until("none has it open", func() bool { return r.uses()[id].Connections == 0 })
		_, err = r.tiers.Remover.Purge(t.Context(), never.Space, "", false)
		r.must(err)
		_, err = r.tiers.Remover.Purge(t.Context(), stored.Space, "", false)
		r.must(err)
		uses = r.uses()
		if _, listed := uses[never.Space]; listed {
			t.Error("a purged space that nobody has opened is listed")
		}
		if u := uses[stored.Space]; u.Chunks != 0 || u.HotBytes != 0 || u.Opened == nil || u.Connections != 1 {
			t.Errorf("a purged space that is open: %+v", u)
		}
		if u := uses[id]; u.Opened == nil || u.Opened.Model != "other" {
			t.Errorf("a closed space: %+v", u)
		}
	})
}

// storeBytes is store for the only chunk of c, with so many bytes.
func (r *rig) storeBytes(c *key.Chain, n uint32) {
	r.t.Helper()
	var g [1]store.Grant
	_, err := r.tiers.Filler.Reserve(r.t.Context(), store.Reservation{Owner: ledger.Daemon}, c, 0, []uint32{n}, g[:])
	r.must(err)
	g[0].Ref.Block.Seal()
	r.tiers.Filler.Commit(c, 0, []tier.Ref{g[0].Ref}, 0, make([]bool, 1))
}

// TestSpacesInPages: more spaces than fit a page are all listed, by id.
func TestSpacesInPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, options{capacity: 16 * mib})
		const n = 2500
		p := chain(1, 1)
		for i := range n {
			binary.BigEndian.PutUint16(p.Space[:], uint16(i))
			r.storeBytes(p, 100)
		}
		r.dial(client.Options{}) // opens one more
		var list []server.SpaceUse
		pages, after := 0, key.SpaceID{}
		for more := true; more; pages++ {
			var page []server.SpaceUse
			if page, more = r.server.Spaces(0, after); len(page) == 0 {
				t.Fatalf("page %d is empty", pages)
			}
			list = append(list, page...)
			_, err := hex.Decode(after[:], []byte(page[len(page)-1].Space))
			r.must(err)
		}
		if pages < 2 || len(list) != n+1 || !slices.IsSortedFunc(list, func(a, b server.SpaceUse) int { return strings.Compare(a.Space, b.Space) }) {
			t.Errorf("%d spaces in %d pages, want %d in order", len(list), pages, n+1)
		}
	})
}
