package server_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/internal/explain"
	"github.com/kvstored/kvstored/internal/server"
	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/tier"
	"github.com/kvstored/kvstored/tier/tierfault"
	"github.com/kvstored/kvstored/tier/tiertest"
)

// TestModels: tokens and bytes count for the model of their space, and the models come to the
// counts of all.
func TestModels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, options{})
		p := chain(1, 4)
		c := r.dial(client.Options{})
		var payloads [][]byte
		for i := range 4 {
			payloads = append(payloads, tiertest.Payload(p.Key(i), size))
		}
		_, err := c.Put(t.Context(), client.Chain(p), 0, payloads)
		r.must(err)
		r.onDisk(chain(2, 4), 0, 4)
		for _, seed := range []uint64{1, 2, 3} {
			j, err := c.Prefetch(t.Context(), client.Chain(chain(seed, 4)), client.PrefetchOptions{})
			r.must(err)
			_, err = j.Wait(t.Context(), 4*tokens)
			r.must(err)
			r.must(j.Release(t.Context()))
		}
		st := r.server.Stats()
		want := server.ModelStats{Model: space.Model, AskedTokens: 12 * tokens, HitBytes: 8 * size, StoredBytes: 4 * size}
		want.HitTokens[tier.CPU], want.HitTokens[tier.Disk] = 4*tokens, 4*tokens
		if len(st.Models) != 1 || st.Models[0] != want {
			t.Errorf("counted %+v, want %+v", st.Models, want)
		}
		if want.AskedTokens != st.AskedTokens || want.StoredBytes != st.StoredBytes || want.HitTokens[tier.Disk] != st.HitTokens[tier.Disk] {
			t.Errorf("in all %+v", st)
		}
	})
}

// TestGetsAsk: what inline gets had and missed is what they asked for, by its model too. A get
// that goes on with another, or reads what a job has asked for, asks for nothing twice.
func TestGetsAsk(t *testing.T) {
	for name, c := range map[string]struct {
		hook       tierfault.Hook
		job        bool
		gets       []client.GetOptions
		asks, hits uint64 // in chunks
		tier, why  string
		patience   time.Duration // of the client; 0: it cancels nothing
	}{
		"at once":                  {gets: []client.GetOptions{{}}, asks: 8, hits: 4, tier: "none", why: "never_stored"},
		"in two":                   {gets: []client.GetOptions{{MaxBytes: size}, {First: 1}}, asks: 8, hits: 4, tier: "none", why: "never_stored"},
		"its begin":                {gets: []client.GetOptions{{MaxChunks: 3}, {First: 3, MaxChunks: 1}}, asks: 4, hits: 4},
		"not from its begin":       {gets: []client.GetOptions{{First: 2}}, asks: 2, hits: 2},
		"what a job has asked for": {job: true, asks: 8, hits: 4, tier: "none", why: "never_stored"},
		"with a tier that fails": {
			hook: tierfault.OnKey(tierfault.Get, chain(1, 8).Key(3), tierfault.Fault{Err: tier.ErrCorrupt}),
			gets: []client.GetOptions{{MaxChunks: 4}}, asks: 4, hits: 3, tier: "disk", why: "corrupt",
		},
		"too late": {
			hook: tierfault.OnKey(tierfault.Get, chain(1, 8).Key(3), tierfault.Fault{Delay: time.Minute}),
			gets: []client.GetOptions{{MaxChunks: 4, Deadline: time.Second}}, asks: 4, hits: 3, tier: "none", why: "timeout",
		},
		"cancelled": {
			hook: tierfault.OnKey(tierfault.Get, chain(1, 8).Key(3), tierfault.Fault{Delay: time.Minute}), patience: time.Second,
			gets: []client.GetOptions{{MaxChunks: 4, Deadline: time.Hour}}, asks: 4, hits: 3, tier: "none", why: "cancelled",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, options{hook: c.hook})
				r.onDisk(chain(1, 4), 0, 4)
				cl := r.dial(client.Options{Inline: true})
				p := client.Chain(chain(1, 8))
				if c.job {
					j, err := cl.Prefetch(t.Context(), p, client.PrefetchOptions{})
					r.must(err)
					_, err = j.Wait(t.Context(), client.All)
					r.must(err)
					r.onDisk(chain(1, 8), 4, 8)
					_, err = cl.Get(t.Context(), j.Prompt(), client.GetOptions{})
					r.must(err)
					r.must(j.Release(t.Context()))
				}
				for _, o := range c.gets {
					ctx, cancel := t.Context(), context.CancelFunc(func() {})
					if c.patience > 0 {
						ctx, cancel = context.WithTimeout(ctx, c.patience)
					}
					if _, err := cl.Get(ctx, p, o); err != nil && !errors.Is(err, context.DeadlineExceeded) {
						t.Fatal(err)
					}
					cancel()
					synctest.Wait()
				}
				st := r.server.Stats()
				var want []explain.Total
				if c.why != "" {
					want = []explain.Total{{Tier: c.tier, Reason: c.why, Tokens: (c.asks - c.hits) * tokens}}
				}
				hit := st.HitTokens[tier.CPU] + st.HitTokens[tier.Disk]
				if st.AskedTokens != c.asks*tokens || st.AskedChunks != c.asks || hit != c.hits*tokens || !slices.Equal(st.Missed.Missed, want) {
					t.Errorf("asked %d, in %d chunks; hit %d, missed %+v; want %d, %d, %+v", st.AskedTokens, st.AskedChunks, hit, st.Missed.Missed, c.asks*tokens, c.hits*tokens, want)
				}
				if len(st.Models) != 1 || st.Models[0].AskedTokens != st.AskedTokens {
					t.Errorf("of models %+v", st.Models)
				}
			})
		})
	}
}

// TestModelsAreBounded: however many models clients name, under any names, a few
// dozen are told apart.
func TestModelsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, options{})
		c := r.dial(client.Options{})
		for i := range 300 {
			s := space
			s.Model = fmt.Sprintf("%d%s", i, strings.Repeat("x", 500))
			if i == 7 {
				s.Model = "(others)\xff"
			}
			o, err := c.OpenSpace(t.Context(), s)
			if err != nil {
				continue // a name that no space may have
			}
			p := client.Chain(chainIn(s, 1, 4))
			p.Space = o
			j, err := c.Prefetch(t.Context(), p, client.PrefetchOptions{})
			r.must(err)
			r.must(j.Release(t.Context()))
		}
		if n := len(r.server.Stats().Models); n < 60 || n > 65 {
			t.Errorf("%d models", n)
		}
	})
}

// TestFailuresByCode: each refusal counts once, for its operation and its code, and also
// of operations that there are not.
func TestFailuresByCode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, options{})
		c := r.greet(wire.FeatureArena)
		c.refused(wire.CodeUnknownJob, wire.OpRelease, &wire.IDRequest{ID: 7})
		c.refused(wire.CodeUnknownJob, wire.OpRelease, &wire.IDRequest{ID: 8})
		c.refused(wire.CodeUnknownFill, wire.OpCommit, &wire.FillRequest{Fill: 9})
		st := r.server.Stats()
		want := map[server.Failures]bool{{Op: "release", Code: "unknown_job", Requests: 2}: true, {Op: "commit", Code: "unknown_fill", Requests: 1}: true}
		sum := uint64(0)
		for _, f := range st.ErrorsBy {
			sum += f.Requests
			if !want[f] {
				t.Errorf("counted %+v", f)
			}
		}
		if sum != 3 || st.Errors != 3 {
			t.Errorf("%d and %d in all", sum, st.Errors)
		}
	})
}
