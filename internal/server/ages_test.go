package server_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/internal/store"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier/tiertest"
)

// fillWith stores all of c with a reservation.
func (r *rig) fillWith(c *client.Client, ch *key.Chain, o client.ReserveOptions) {
	r.t.Helper()
	o.Count, o.Size = ch.Len(), size
	f, err := c.Reserve(r.t.Context(), client.Chain(ch), o)
	r.must(err)
	for i := range f.Len() {
		copy(f.Bytes(i), tiertest.Payload(ch.Key(i), size))
	}
	results, err := f.Commit(r.t.Context())
	r.must(err)
	for i, s := range results {
		if s.Code != client.ResultStored {
			r.t.Fatalf("chunk %d: %v", i, s.Code)
		}
	}
}

// TestMaxAgeOfARequest: every way to store takes a largest age, or has that of the prompt
// and of the space, the shortest of which counts; when it is reached nothing is found. A
// chunk that is there already keeps its own.
func TestMaxAgeOfARequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, options{})
		r.must(r.tiers.Operator.SetQuotas([]store.Quota{{Match: "bounded", MaxAge: time.Second}}, r.server.Models))
		c, inline := r.dial(client.Options{}), r.dial(client.Options{Inline: true})
		configs := map[string]string{"max_age_seconds": "1"}
		asked := func(c *client.Client, ch *key.Chain) {
			j, err := c.Prefetch(t.Context(), client.Chain(ch), client.PrefetchOptions{Configs: configs})
			r.must(err)
			if len(j.Faults()) > 0 {
				t.Fatal(j.Faults())
			}
			r.must(j.Release(t.Context()))
		}
		bounded := space
		bounded.Model = "bounded"
		of, err := c.OpenSpace(t.Context(), bounded)
		r.must(err)
		in := client.Chain(chainIn(bounded, 7, 2))
		in.Space = of

		stays := chain(1, 2)
		r.fillWith(c, stays, client.ReserveOptions{})
		over := map[string]*key.Chain{}
		for i, way := range []struct {
			name  string
			store func(ch *key.Chain)
		}{
			{"reserve", func(ch *key.Chain) { r.fillWith(c, ch, client.ReserveOptions{MaxAge: time.Second}) }},
			{"put", func(ch *key.Chain) { r.fillWith(inline, ch, client.ReserveOptions{MaxAge: time.Second}) }},
			{"config", func(ch *key.Chain) { asked(c, ch); r.fillWith(c, ch, client.ReserveOptions{}) }},
			{"config, and longer", func(ch *key.Chain) { asked(c, ch); r.fillWith(c, ch, client.ReserveOptions{MaxAge: time.Hour}) }},
			{"config of a put", func(ch *key.Chain) { asked(inline, ch); r.fillWith(inline, ch, client.ReserveOptions{}) }},
			{"hint", func(ch *key.Chain) { r.hint(c, ch, configs); r.fillWith(c, ch, client.ReserveOptions{}) }},
			{"goes on", func(ch *key.Chain) {
				head := *ch
				head.Hashes, head.Tokens = ch.Hashes[:1], ch.Tokens[:1]
				asked(c, &head)
				r.fillWith(c, ch, client.ReserveOptions{})
			}},
		} {
			ch := chain(uint64(100+i), 2)
			over[way.name] = ch
			way.store(ch)
		}
		hour := chain(50, 2)
		r.fillWith(c, hour, client.ReserveOptions{MaxAge: time.Hour})
		f, err := c.Reserve(t.Context(), client.Chain(stays), client.ReserveOptions{Count: 2, Size: size, MaxAge: time.Second})
		r.must(err)
		if f.Status(0) != client.Exists {
			t.Fatal(f.Status(0))
		}
		g, err := c.Reserve(t.Context(), in, client.ReserveOptions{Count: 2, Size: size, MaxAge: time.Hour})
		r.must(err)
		_, err = g.Commit(t.Context())
		r.must(err)

		time.Sleep(time.Second - 1)
		for name, ch := range over {
			if m, err := c.Lookup(t.Context(), client.Chain(ch), 0); err != nil || m.Total.Chunks != 2 {
				t.Errorf("%s: %d chunks are found before their age, %v", name, m.Total.Chunks, err)
			}
		}
		time.Sleep(time.Nanosecond)
		for name, ch := range over {
			m, err := c.Lookup(t.Context(), client.Chain(ch), 0)
			if r.must(err); m.Total.Chunks > 0 {
				t.Errorf("%s: %d chunks are found", name, m.Total.Chunks)
			}
			got, err := inline.Get(t.Context(), client.Chain(ch), client.GetOptions{})
			if r.must(err); len(got) > 0 {
				t.Errorf("%s: %d chunks are read", name, len(got))
			}
		}
		if m, err := c.Lookup(t.Context(), in, 0); err != nil || m.Total.Chunks > 0 {
			t.Errorf("in a bounded space %d chunks are found: %v", m.Total.Chunks, err)
		}
		for _, ch := range []*key.Chain{stays, hour} {
			if m, err := c.Lookup(t.Context(), client.Chain(ch), 0); err != nil || m.Total.Chunks != 2 {
				t.Errorf("%d of 2 chunks are left: %v", m.Total.Chunks, err)
			}
		}
		for name, age := range map[string]time.Duration{"negative": -time.Second, "under a second": time.Millisecond, "beyond all": 200 * 365 * 24 * time.Hour} {
			if _, err := c.Reserve(t.Context(), client.Chain(hour), client.ReserveOptions{Count: 1, Size: size, MaxAge: age}); err == nil {
				t.Errorf("%s: it is taken", name)
			}
		}
	})
}
