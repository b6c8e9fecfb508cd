package server

import (
	"context"
	"flag"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/internal/server/hint"
	"github.com/kvstored/kvstored/internal/store"
	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
	"github.com/kvstored/kvstored/tier/tiertest"
)

var raceRounds = flag.Int("race-rounds", 6, "how often each race of TestRaces is run; 1000 with -race before a release")

// races bring two events to the same moment. Which comes first is up to the
// scheduler; in both orders the job ends for a reason in may, and nothing may be
// left.
var races = []struct {
	name string
	script
	req  wire.PrefetchRequest
	play func(*stage, *job)
	may  []wire.Code
}{
	{"deadline against completion", script{at: "dddd"}, wire.PrefetchRequest{LoadMillis: 10},
		func(g *stage, j *job) { g.done(j) }, []wire.Code{fine, late}},
	{"deadline against failure", script{at: "dddd", do: ".x"}, wire.PrefetchRequest{LoadMillis: 10},
		func(g *stage, j *job) { g.done(j) }, []wire.Code{failed, late}},
	{"cancel against completion", script{at: "dddd"}, wire.PrefetchRequest{},
		func(g *stage, j *job) {
			time.Sleep(diskTime)
			g.send(wire.OpRelease, &wire.IDRequest{ID: j.id})
		}, []wire.Code{fine, cancelled}},
	{"cancel against growth", script{at: "drdr"}, wire.PrefetchRequest{},
		func(g *stage, j *job) {
			time.Sleep(diskTime)
			g.send(wire.OpRelease, &wire.IDRequest{ID: j.id})
		}, []wire.Code{cancelled}},
	{"cancel against a push", script{at: "dddddddd", pushes: true}, wire.PrefetchRequest{},
		func(g *stage, j *job) {
			time.Sleep(diskTime)
			g.send(wire.OpRelease, &wire.IDRequest{ID: j.id})
			if frame, _ := j.appendPush(nil); len(frame) != 0 {
				g.t.Error("a push follows the reply to cancel")
			}
		}, []wire.Code{fine, cancelled}},
	{"release against a push", script{at: "dddddddd", pushes: true}, wire.PrefetchRequest{},
		func(g *stage, j *job) {
			time.Sleep(diskTime)
			g.send(wire.OpRelease, &wire.IDRequest{ID: j.id})
		}, []wire.Code{fine, cancelled}},
	{"disconnect against completion", script{at: "dddd"}, wire.PrefetchRequest{},
		func(g *stage, j *job) {
			time.Sleep(diskTime)
			j.end() // as close does
		}, []wire.Code{fine, cancelled}},
	{"deletion of a chunk about to load", script{at: "dddd"}, wire.PrefetchRequest{},
		func(g *stage, j *job) {
			time.Sleep(diskTime)
			g.delete(2)
			g.done(j)
		}, []wire.Code{fine, gap}},
	{"eviction of a chunk about to load", script{at: "dddddd"}, wire.PrefetchRequest{},
		func(g *stage, j *job) {
			time.Sleep(diskTime)
			g.evict(tier.Disk, 2, 3, 4, 5)
			g.done(j)
		}, []wire.Code{fine, gap}},
	{"eviction of a chunk about to load that remote has", script{at: "ddddbb"}, wire.PrefetchRequest{},
		func(g *stage, j *job) {
			time.Sleep(diskTime)
			g.evict(tier.Disk, 4, 5)
			g.done(j)
		}, []wire.Code{fine}},
	{"deletion right after the match", script{at: "dddd"}, wire.PrefetchRequest{},
		func(g *stage, j *job) {
			g.delete(2)
			g.done(j)
		}, []wire.Code{fine, gap}},
	{"best effort", script{at: "dddd"}, wire.PrefetchRequest{Policy: wire.PolicyBestEffort},
		func(g *stage, j *job) {
			time.Sleep(diskTime)
			g.send(wire.OpWait, &wire.WaitRequest{Job: j.id, MinTokens: 64, Deadline: wire.Deadline{Given: true, Millis: 0}, From: wire.FromUnsent})
			g.done(j)
		}, []wire.Code{fine, late}},
	{"one chunk wanted by 50 jobs", script{at: "d"}, wire.PrefetchRequest{},
		func(g *stage, j *job) {
			jobs := []*job{j}
			for range 49 {
				jobs = append(jobs, g.prefetch(&wire.PrefetchRequest{}))
			}
			for i, k := range jobs {
				if i%3 == 1 {
					time.Sleep(diskTime / 20)
					g.send(wire.OpRelease, &wire.IDRequest{ID: k.id})
					continue
				}
				g.done(k)
				if s := k.state(0); s.Code != fine || s.Ready.Chunks != 1 {
					g.t.Errorf("job %d of 50: %+v", i, s)
				}
			}
			if n := g.server.o.Store.Operator.Stats().Loads[tier.Disk].Chunks; n != 1 {
				g.t.Errorf("the disk was read %d times for one chunk", n)
			}
		}, []wire.Code{fine}},
}

// evict takes chunks out of one tier without a word to the store, as a tier does
// that needs room.
func (g *stage) evict(p tier.Place, chunks ...int) {
	for _, i := range chunks {
		g.must(g.below[p].Delete(context.Background(), tiertest.Keys(g.chain, i, i+1)))
	}
}

func (g *stage) delete(i int) {
	if _, err := g.server.o.Store.Remover.Delete(g.session.ctx, tiertest.Keys(g.chain, i, i+1)); err != nil {
		g.t.Error(err)
	}
}

func TestRaces(t *testing.T) {
	for _, c := range races {
		t.Run(c.name, func(t *testing.T) {
			for range *raceRounds {
				play(t, c.script, func(t *testing.T, g *stage) {
					j := g.prefetch(&c.req)
					c.play(g, j)
					g.checkMay(j, c.may)
				})
				if t.Failed() {
					return
				}
			}
		})
	}
}

func (g *stage) checkMay(j *job, may []wire.Code) {
	g.t.Helper()
	s := j.state(0)
	for _, r := range may {
		if s.Done() && s.Code == r {
			if whole := s.Ready.Chunks == uint32(g.chain.Len()); r == fine && !whole && s.Refs.Len() > 0 || r == gap && s.Ready.Chunks < 2 {
				g.t.Errorf("%s with %d of %d chunks", r, s.Ready.Chunks, g.chain.Len())
			}
			return
		}
	}
	g.t.Errorf("done %t, reason %s; want one of %v", s.Done(), s.Code, may)
}

// Tiers that answer no call, not even one whose context ends: two thousand jobs
// are answered at their deadlines, and once the tiers come back nothing of them is
// left. The bubble fails if a goroutine is.
func TestHungTiers(t *testing.T) {
	const rounds, jobs = 4, 500
	s := script{at: "cbbbbbbb", do: "g" + strings.Repeat("G", 7), gate: nil}
	synctest.Test(t, func(t *testing.T) {
		s.gate = make(chan struct{})
		g := newStage(t, &s)
		for round := range rounds {
			var live []*job
			for range jobs {
				live = append(live, g.prefetch(&wire.PrefetchRequest{LoadMillis: 100}))
			}
			start := time.Now()
			for _, j := range live {
				g.done(j)
				if s := j.state(0); s.Code != late || s.Ready.Chunks != 1 {
					t.Fatalf("%+v; want one chunk at the deadline", s)
				}
			}
			if d := time.Since(start); d != 100*ms {
				t.Fatalf("answered after %s; want the deadline", d)
			}
			if round == rounds-1 {
				break // the last are still there when the tiers come back
			}
			for _, j := range live {
				g.send(wire.OpRelease, &wire.IDRequest{ID: j.id})
			}
			g.replies = g.replies[:0]
		}
		close(s.gate)
		synctest.Wait()
		g.strike()
		if n := g.hot.Ledger().Stats().ClassBytes[ledger.Load]; n != 0 {
			t.Errorf("%d bytes of loads are left", n)
		}
	})
}

// slow is a store of claims that takes until a mutex is free.
type slow struct {
	*store.Leases
	until *sync.Mutex
}

func (s slow) Claim(space key.SpaceID, hs []key.Hash, claimed []bool) {
	s.until.Lock()
	defer s.until.Unlock()
	s.Leases.Claim(space, hs, claimed)
}

// A job shows nothing as ready that it is still to pin: with a pin in its hands a client
// asks how much is pinned, or ends the pin.
func TestPinnedBeforeReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := script{at: "dd"}
		g := newStage(t, &s)
		var late sync.Mutex
		g.server.hints.claims = hint.NewClaims(slow{g.server.o.Store.Leases, &late}, g.server.settings().Retain)
		j := g.prefetch(&wire.PrefetchRequest{Flags: wire.PrefetchPin, LookupID: "x"})
		time.Sleep(diskTime - 1)
		late.Lock() // the pins are long in coming
		time.Sleep(time.Nanosecond)
		for g.hot.Ledger().Stats().ClassBytes[ledger.Pin] == 0 {
			runtime.Gosched()
		}
		if st := j.state(0); st.Done() || st.Ready.Chunks != 0 {
			t.Errorf("%s with %d chunks ready; none is pinned", st.Code, st.Ready.Chunks)
		}
		late.Unlock()
		g.done(j)
		_, n := g.session.holds()
		if st := j.state(0); st.Code != fine || st.Ready.Chunks != 2 || n != 2*scriptSize {
			t.Errorf("%s with %d chunks ready, %d bytes pinned", st.Code, st.Ready.Chunks, n)
		}
		g.send(wire.OpRelease, &wire.IDRequest{ID: j.id})
		g.send(wire.OpPin, &wire.PinRequest{Chain: wire.Chain{Form: wire.FormNone}, LookupID: "x"})
		if n := g.hot.Ledger().Stats().ClassBytes[ledger.Pin]; n != 0 {
			t.Errorf("%d bytes stay pinned", n)
		}
		g.strike()
	})
}
