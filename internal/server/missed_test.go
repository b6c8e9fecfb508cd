package server_test

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/internal/explain"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/internal/server"
	"github.com/kvstored/kvstored/internal/store"
	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/tier"
	"github.com/kvstored/kvstored/tier/tierfault"
	"github.com/kvstored/kvstored/tier/tiertest"
)

// TestWhyMissed causes each reason why a prompt is not had to its end. Each case
// prepares the store, asks for the prompt of seed 1, and names the tokens that it
// misses by tier and reason. What was asked for is what was had and what is counted.
func TestWhyMissed(t *testing.T) {
	p := chain(1, 4)
	for name, c := range map[string]struct {
		o     options
		until func(end <-chan struct{}) tierfault.Hook // what waits until the case ends
		prep  func(r *rig, c *raw)
		ask   wire.PrefetchRequest
		takes time.Duration // until the job ends
		want  explain.Total
	}{
		"never stored": {want: explain.Total{Tier: "none", Reason: "never_stored", Tokens: 4 * tokens}},
		"evicted": {
			o: options{capacity: 256 * kib, lone: true},
			prep: func(r *rig, _ *raw) {
				r.store(p, 0, 4)
				r.store(chain(2, 14), 0, 14)
				r.store(chain(3, 14), 0, 14)
			},
			want: explain.Total{Tier: "cpu", Reason: "evicted", Tokens: 4 * tokens},
		},
		"declined: the writer was behind": {
			o: options{capacity: 256 * kib, limits: ledger.Limits{Unwritten: size}},
			until: func(end <-chan struct{}) tierfault.Hook {
				return tierfault.On(tierfault.Put, tierfault.Fault{Until: end})
			},
			prep: func(r *rig, _ *raw) {
				r.store(chain(5, 1), 0, 1)
				synctest.Wait() // it is being written
				r.store(p, 0, 4)
				r.store(chain(2, 14), 0, 14)
				r.store(chain(3, 14), 0, 14)
				r.until("all of it has left", func() bool {
					r.store(chain(4, 14), 0, 14)
					m, err := r.tiers.Lookups.Match(r.t.Context(), p, tier.All)
					r.must(err)
					return m.In[tier.CPU].Chunks+m.In[tier.Disk].Chunks == 0
				})
			},
			want: explain.Total{Tier: "disk", Reason: "declined_queue_full", Tokens: 4 * tokens},
		},
		"declined: the quota is in use": {
			o: options{quotas: []store.Quota{{Match: "*", Bytes: 2 * size}}, lone: true},
			prep: func(r *rig, c *raw) {
				r.store(p, 0, 2)
				c.prefetch(p) // holds them
				c.refused(wire.CodeOverQuota, wire.OpReserve, &wire.ReserveRequest{Chain: c.chain(p), Sizes: wire.ViewU32s([]uint32{size}), First: 2})
			},
			want: explain.Total{Tier: "cpu", Reason: "declined_quota", Tokens: 2 * tokens},
		},
		"deleted": {
			o: options{lone: true}, // else it may have reached the disk, and left that last
			prep: func(r *rig, _ *raw) {
				r.store(p, 0, 4)
				_, err := r.tiers.Remover.Delete(r.t.Context(), tiertest.Keys(p, 3, 4))
				r.must(err)
			},
			want: explain.Total{Tier: "cpu", Reason: "deleted", Tokens: tokens},
		},
		"only in another space": {
			prep: func(r *rig, _ *raw) {
				other := space
				other.Model = "another"
				r.store(chainIn(other, 1, 4), 0, 4)
			},
			want: explain.Total{Tier: "none", Reason: "other_space", Tokens: 4 * tokens},
		},
		"being written": {
			prep: func(r *rig, c *raw) { r.connectAndReserve(c) },
			want: explain.Total{Tier: "none", Reason: "pending", Tokens: 4 * tokens},
		},
		"not searched": {
			prep: func(r *rig, _ *raw) { r.onDisk(p, 0, 4) },
			ask:  wire.PrefetchRequest{Search: wire.Tiers(tier.Of(tier.CPU))},
			want: explain.Total{Tier: "disk", Reason: "not_searched", Tokens: 4 * tokens},
		},
		"corrupt": {
			o:    options{hook: tierfault.OnKey(tierfault.Get, p.Key(2), tierfault.Fault{Err: tier.ErrCorrupt})},
			prep: func(r *rig, _ *raw) { r.onDisk(p, 0, 4) },
			want: explain.Total{Tier: "disk", Reason: "corrupt", Tokens: 2 * tokens},
		},
		"lost by its tier": {
			o:    options{hook: tierfault.OnKey(tierfault.Get, p.Key(1), tierfault.Fault{Err: tier.ErrNotFound})},
			prep: func(r *rig, _ *raw) { r.onDisk(p, 0, 4) },
			want: explain.Total{Tier: "disk", Reason: "gap", Tokens: 3 * tokens},
		},
		"its tier is off": {
			o:    options{hook: tierfault.OnKey(tierfault.Get, p.Key(1), tierfault.Fault{Err: tier.ErrOff})},
			prep: func(r *rig, _ *raw) { r.onDisk(p, 0, 4) },
			want: explain.Total{Tier: "disk", Reason: "tier_off", Tokens: 3 * tokens},
		},
		"too late": {
			until: func(end <-chan struct{}) tierfault.Hook {
				return tierfault.On(tierfault.Get, tierfault.Fault{Until: end})
			},
			prep: func(r *rig, _ *raw) { r.onDisk(p, 0, 4) },
			ask:  wire.PrefetchRequest{LoadMillis: 20_000}, takes: 20 * time.Second,
			want: explain.Total{Tier: "none", Reason: "timeout", Tokens: 4 * tokens},
		},
		"its tier failed": {
			o:    options{hook: tierfault.OnKey(tierfault.Get, p.Key(1), tierfault.Fault{Err: errors.New("input/output error")})},
			prep: func(r *rig, _ *raw) { r.onDisk(p, 0, 4) },
			want: explain.Total{Tier: "disk", Reason: "failed", Tokens: 3 * tokens},
		},
		"the disk is being read": {
			o: options{scanning: true},
			until: func(end <-chan struct{}) tierfault.Hook {
				return tierfault.On(tierfault.Recover, tierfault.Fault{Until: end})
			},
			want: explain.Total{Tier: "disk", Reason: "scanning", Tokens: 4 * tokens},
		},
		"DRAM has no room": {
			o: options{capacity: 256 * kib, roomWait: roomWait}, takes: roomWait,
			prep: func(r *rig, _ *raw) {
				r.onDisk(p, 0, 4)
				// Room that is given to a put cannot be evicted, as chunks of a lease may be
				// before it begins.
				if m := r.greet(wire.FeatureArena | wire.FeatureStaging).reserve(chain(2, 16)); m.Code != wire.CodeOK {
					r.t.Fatalf("room for all of DRAM: %v", m.Code)
				}
			},
			want: explain.Total{Tier: "disk", Reason: "no_space", Tokens: 4 * tokens},
		},
		"more than a client may hold": {
			o:    options{limits: ledger.Limits{Lease: 2 * size}},
			prep: func(r *rig, _ *raw) { r.store(p, 0, 4) },
			want: explain.Total{Tier: "none", Reason: "over_budget", Tokens: 2 * tokens},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ended := make(chan struct{})
				defer close(ended)
				if c.until != nil {
					c.o.hook = c.until(ended)
				}
				r := newRig(t, c.o)
				conn := r.greet(wire.FeatureArena | wire.FeatureStaging)
				if c.prep != nil {
					c.prep(r, conn)
				}
				before := r.server.Stats()
				c.ask.Chain = conn.chain(p)
				var reply wire.PrefetchReply
				conn.do(wire.OpPrefetch, &c.ask, &reply)
				var st wire.JobState
				r.takes(c.takes, "the job", func() { conn.do(wire.OpWait, &wire.WaitRequest{Job: reply.Job, MinTokens: 4 * tokens}, &st) })
				var end wire.ReleaseReply
				conn.do(wire.OpRelease, &wire.IDRequest{ID: reply.Job}, &end)
				after := r.server.Stats()
				got := minus(after.Missed, before.Missed)
				if len(got) != 1 || got[0] != c.want {
					t.Errorf("missed %+v, want %+v; the job ended with %v", got, c.want, st.Code)
				}
				hit := after.HitTokens[tier.CPU] + after.HitTokens[tier.Disk] - before.HitTokens[tier.CPU] - before.HitTokens[tier.Disk]
				if asked := after.AskedTokens - before.AskedTokens; asked != hit+c.want.Tokens {
					t.Errorf("asked for %d tokens, had %d, missed %+v", asked, hit, got)
				}
			})
		})
	}
}

// connectAndReserve has another connection reserve the prompt of seed 1, and not commit it.
func (r *rig) connectAndReserve(*raw) {
	r.greet(wire.FeatureArena | wire.FeatureStaging).reserve(chain(1, 4))
}

// minus is the totals of a that b does not have.
func minus(a, b explain.Totals) (out []explain.Total) {
	for _, m := range a.Missed {
		for _, o := range b.Missed {
			if o.Tier == m.Tier && o.Reason == m.Reason {
				m.Tokens -= o.Tokens
			}
		}
		if m.Tokens > 0 {
			out = append(out, m)
		}
	}
	return out
}

// TestMissedWithoutWaiting: a job that its client does not wait for, and one whose lease
// is revoked, say so.
func TestMissedWithoutWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hook, release := gate()
		r := newRig(t, options{hook: hook, Options: server.Options{Settings: server.Settings{LeaseMaxAge: time.Minute}}})
		p := chain(1, 4)
		r.onDisk(p, 0, 4)
		c := r.dial(client.Options{})
		j, err := c.Prefetch(t.Context(), client.Chain(p), client.PrefetchOptions{})
		r.must(err)
		err = j.Release(t.Context())
		r.must(err)
		close(release)
		got := r.server.Stats().Missed.Missed
		if want := (explain.Total{Tier: "none", Reason: "cancelled", Tokens: 4 * tokens}); len(got) != 1 || got[0] != want {
			t.Errorf("missed %+v, want %+v", got, want)
		}
	})
}

// TestMissedRevoked: what a lease that is taken back while it loads does not have yet, is
// missing for that.
func TestMissedRevoked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hook, open := gate()
		r := newRig(t, options{hook: hook, Options: server.Options{Settings: server.Settings{LeaseMaxAge: leaseAge}}})
		defer close(open)
		p := chain(1, 4)
		r.onDisk(p, 2, 4)
		r.store(p, 0, 2)
		r.greet(wire.FeatureArena | wire.FeaturePushes).prefetch(p)
		r.after(leaseAge, "the lease is revoked", func() bool { return r.server.Stats().Revoked == 1 })
		got := r.server.Stats().Missed.Missed
		if want := (explain.Total{Tier: "none", Reason: "revoked", Tokens: 2 * tokens}); len(got) != 1 || got[0] != want {
			t.Errorf("missed %+v, want %+v", got, want)
		}
	})
}

// TestMissedOfGroups: a prompt of which a state is missing misses what no length has.
func TestMissedOfGroups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, options{capacity: 16 * mib})
		c, m := r.hybrid(8, 1)
		m.put(r.store, 4)
		j, err := c.Prefetch(t.Context(), client.Chain(m.chains[0][0]), client.PrefetchOptions{Groups: m.groups, Ranks: m.ranks})
		r.must(err)
		err = j.Release(t.Context())
		r.must(err)
		got := r.server.Stats().Missed.Missed
		if want := (explain.Total{Tier: "none", Reason: "group", Tokens: 4 * tokens}); len(got) != 1 || got[0] != want {
			t.Errorf("missed %+v, want %+v", got, want)
		}
	})
}

// TestReadyIsTimed: each prefetch that finds something is timed once, by the farthest
// tier that a chunk came from.
func TestReadyIsTimed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		told := make(chan tier.Place, 10)
		r := newRig(t, options{Options: server.Options{Ready: func(from tier.Place, took time.Duration) {
			if took <= 0 {
				t.Errorf("it took %v", took)
			}
			told <- from
		}}})
		p := chain(1, 4)
		r.onDisk(p, 0, 4)
		c := r.dial(client.Options{})
		for _, seed := range []uint64{1, 1, 2} { // from disk, from DRAM, not at all
			j, err := c.Prefetch(t.Context(), client.Chain(chain(seed, 4)), client.PrefetchOptions{})
			r.must(err)
			_, err = j.Wait(t.Context(), 4*tokens)
			r.must(err)
			r.must(j.Release(t.Context()))
		}
		close(told)
		var got []tier.Place
		for p := range told {
			got = append(got, p)
		}
		if !slices.Equal(got, []tier.Place{tier.Disk, tier.CPU}) {
			t.Errorf("ready from %v", got)
		}
	})
}

// TestWhyIsTold: a client that asks for it is told why part of a prompt was missed, by
// lookups and prefetches, and a client that does not is told nothing.
func TestWhyIsTold(t *testing.T) {
	p := chain(1, 4)
	for name, c := range map[string]struct {
		o      options
		prep   func(r *rig)
		search client.Tiers
		code   wire.Code
		tier   client.Tiers
		known  bool // for how long it has been gone
	}{
		"never stored": {code: wire.CodeNeverStored},
		"evicted": {
			o: options{capacity: 256 * kib, lone: true},
			prep: func(r *rig) {
				r.store(p, 0, 4)
				r.store(chain(2, 14), 0, 14)
				r.store(chain(3, 14), 0, 14)
			},
			code: wire.CodeEvicted, tier: client.CPU, known: true,
		},
		"deleted": {
			o: options{lone: true},
			prep: func(r *rig) {
				r.store(p, 0, 4)
				_, err := r.tiers.Remover.Delete(r.t.Context(), tiertest.Keys(p, 3, 4))
				r.must(err)
			},
			code: wire.CodeNotFound, tier: client.CPU, known: true,
		},
		"elsewhere": {
			prep: func(r *rig) {
				other := space
				other.Model = "another"
				r.store(chainIn(other, 1, 4), 0, 4)
			},
			code: wire.CodeOtherSpace,
		},
		"left out":  {prep: func(r *rig) { r.onDisk(p, 0, 4) }, search: client.CPU, code: wire.CodeExists, tier: client.Disk},
		"all of it": {prep: func(r *rig) { r.store(p, 0, 4) }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, c.o)
				cl := r.dial(client.Options{})
				if c.prep != nil {
					c.prep(r)
				}
				looked, err := cl.LookupWith(t.Context(), client.Chain(p), client.LookupOptions{Search: c.search, Why: true})
				r.must(err)
				j, err := cl.Prefetch(t.Context(), client.Chain(p), client.PrefetchOptions{Search: c.search, Why: true})
				r.must(err)
				r.must(j.Release(t.Context()))
				for what, got := range map[string]*client.Missing{"lookup": looked.Missing, "prefetch": j.Match().Missing} {
					switch {
					case c.code == wire.CodeOK && got == nil:
					case got == nil || got.Code != c.code || got.Tier != c.tier || (got.Ago != client.NotKnown) != c.known:
						t.Errorf("%s: missing %+v, want %v in %v", what, got, c.code, c.tier)
					}
				}
				if quiet, err := cl.Lookup(t.Context(), client.Chain(p), c.search); err != nil || quiet.Missing != nil {
					t.Errorf("without asking: %+v, %v", quiet.Missing, err)
				}
			})
		})
	}
}
