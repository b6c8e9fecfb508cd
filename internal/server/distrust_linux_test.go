package server_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/internal/server"
	"github.com/kvstored/kvstored/internal/wire"
)

// shelf is the folder of a list of distrusted spaces.
type shelf struct{ text []byte }

func (s *shelf) Read(string) ([]byte, error) { return s.text, nil }

func (s *shelf) Replace(_ string, text []byte) error {
	s.text = text
	return nil
}

// keepDistrusted has a rig keep what clients distrust.
func (r *rig) keepDistrusted() {
	r.t.Helper()
	if garbled, err := r.tiers.Operator.Distrusted().Keep(new(shelf)); garbled != nil || err != nil {
		r.t.Fatal(garbled, err)
	}
}

// TestDistrust: of a space that a client with the right to write distrusts nothing is found,
// leased or got, nor is anything stored there, and the answers say why.
// Other spaces stay, and once it is trusted again everything is back.
func TestDistrust(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, options{})
		a := r.dial(client.Options{Inline: true})
		if err := a.Distrust(t.Context(), modelSpace("nowhere")); err == nil || !strings.Contains(err.Error(), "not kept") || len(r.tiers.Operator.Distrusted().All()) != 1 {
			t.Errorf("nothing keeps it: %v, %v", err, r.tiers.Operator.Distrusted().All())
		}
		r.keepDistrusted()
		b := r.dial(client.Options{Inline: true})
		other := modelSpace("other")
		stored, kept := chain(1, 4), chainIn(other, 2, 4)
		r.store(stored, 0, 4)
		r.store(kept, 0, 4)
		found := func(want int) {
			t.Helper()
			m, err := b.LookupWith(t.Context(), client.Chain(stored), client.LookupOptions{Why: true})
			if err != nil || m.Total.Chunks != uint32(want) {
				t.Errorf("a lookup finds %+v, %v", m, err)
			}
			if want == 0 && (m.Missing == nil || m.Missing.Code != wire.CodeDistrusted) {
				t.Errorf("it is told %+v", m.Missing)
			}
			j, err := b.Prefetch(t.Context(), client.Chain(stored), client.PrefetchOptions{})
			r.must(err)
			if n := j.Match().Total.Chunks; n != uint32(want) {
				t.Errorf("a prefetch finds %d chunks", n)
			}
			r.must(j.Release(t.Context()))
			got, err := b.Get(t.Context(), client.Chain(stored), client.GetOptions{})
			if err != nil || len(got) != want {
				t.Errorf("get has %d chunks, %v", len(got), err)
			}
		}
		found(4)
		r.must(a.Distrust(t.Context(), space))
		found(0)
		if u := r.uses()[stored.Space]; u.Distrusted.IsZero() || u.Chunks != 4 {
			t.Errorf("%+v", u)
		}
		if st := r.tiers.Operator.Stats(); st.Distrusted != 2 {
			t.Errorf("%d are distrusted", st.Distrusted)
		}
		p := client.Chain(kept)
		there, err := b.OpenSpace(t.Context(), other)
		r.must(err)
		p.Space = there
		if m, err := b.Lookup(t.Context(), p, 0); err != nil || m.Total.Chunks != 4 {
			t.Errorf("of another space %+v, %v", m, err)
		}
		more := chain(3, 1)
		if res, err := a.Put(t.Context(), client.Chain(more), 0, [][]byte{make([]byte, size)}); err != nil || len(res) != 1 || res[0].Code != wire.CodeDeclined {
			t.Errorf("a put is answered %+v, %v", res, err)
		}
		if was, err := r.server.Trust(stored.Space); !was || err != nil {
			t.Errorf("%t, %v", was, err)
		}
		found(4)
	})
}

// TestDistrustTakesWrite: a user that may only read in a space, or not even that, does not
// distrust it, nor may a user distrust many.
func TestDistrustTakesWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		text := fmt.Sprintf("[{uids: [%d], match: m, rights: [read]}, {uids: [%d], match: other, rights: [read, write, admin]}, {uids: [%d], match: m, rights: [write]}]", alice, bob, carol)
		r := newRig(t, options{Options: server.Options{Settings: server.Settings{Access: accepted(t, text)}}})
		r.keepDistrusted()
		for _, uid := range []uint32{alice, bob, carol} {
			c, err := r.dialAs(uid, client.Options{Inline: true})
			r.must(err)
			err = c.Distrust(t.Context(), space)
			if uid == carol {
				r.must(err)
			} else if !errors.Is(err, client.ErrDenied) || len(r.tiers.Operator.Distrusted().All()) != 0 {
				t.Errorf("user %d: %v, %v", uid, err, r.tiers.Operator.Distrusted().All())
			}
			nameless := space
			nameless.Model = ""
			if err := c.Distrust(t.Context(), nameless); err == nil {
				t.Errorf("user %d, no model: %v", uid, err)
			}
			for i := range 70 {
				s := space
				s.Revision = fmt.Sprint(i)
				if err = c.Distrust(t.Context(), s); err != nil {
					break
				}
			}
			if uid == carol && !errors.Is(err, client.ErrOverBudget) {
				t.Errorf("one user distrusts without end: %v", err)
			}
		}
		if _, mine := r.tiers.Operator.Distrusted().All()[r.idOf(space)]; !mine {
			t.Error("who may write may not distrust")
		}
	})
}
