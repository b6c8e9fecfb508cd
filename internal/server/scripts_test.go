package server

import (
	"strings"
	"testing"
	"time"

	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/tier"
)

// ending is how a job is to end.
type ending struct {
	ready  uint32
	tokens uint64
	from   [3]uint32 // chunks from DRAM, disk and remote
	reason wire.Code
	failed string
	after  time.Duration // from the request; -1 = whenever
	cached string        // what is in DRAM then and after all loads; "" = do not ask
}

const (
	fine      = wire.CodeOK
	gap       = wire.CodeGap
	failed    = wire.CodeFailed
	corrupt   = wire.CodeCorrupt
	late      = wire.CodeTimeout
	noSpace   = wire.CodeNoSpace
	over      = wire.CodeOverBudget
	cancelled = wire.CodeCancelled

	ms = time.Millisecond

	inCPU, onDisk, inRemote = wire.TierCPU, wire.TierDisk, wire.TierRemote
)

// scripts is every way a job can go. The window holds 64 chunks unless the script
// says otherwise, half of them of each tier where there are two.
var scripts = []struct {
	name string
	script
	req  wire.PrefetchRequest
	want ending
}{
	// Where the chunks are.
	{"nothing anywhere", script{at: "....."}, wire.PrefetchRequest{}, ending{0, 0, [3]uint32{}, fine, "", 0, "00000"}},
	{"all in DRAM", script{at: "ccccc"}, wire.PrefetchRequest{}, ending{5, 80, [3]uint32{5}, fine, "", 0, "11111"}},
	{"all on disk", script{at: "ddddd"}, wire.PrefetchRequest{}, ending{5, 80, [3]uint32{0, 5}, fine, "", 10 * ms, "11111"}},
	{"all in the remote tier", script{at: "rrrrr"}, wire.PrefetchRequest{}, ending{5, 80, [3]uint32{0, 0, 5}, fine, "", 30 * ms, "11111"}},
	{"all in the remote tier, a window of four", script{at: "rrrrr", o: Prefetch{WindowBytes: 4 * scriptSize}}, wire.PrefetchRequest{}, ending{5, 80, [3]uint32{0, 0, 5}, fine, "", 60 * ms, "11111"}},
	{"in both: the nearest serves", script{at: "bbbb"}, wire.PrefetchRequest{}, ending{4, 64, [3]uint32{0, 4}, fine, "", 10 * ms, "1111"}},
	{"one tier after the other", script{at: "ccddrr"}, wire.PrefetchRequest{}, ending{6, 96, [3]uint32{2, 2, 2}, fine, "", 30 * ms, "111111"}},
	{"alternating", script{at: "cdrcdr"}, wire.PrefetchRequest{}, ending{6, 96, [3]uint32{2, 2, 2}, fine, "", 30 * ms, ""}},
	{"DRAM behind disk", script{at: "ddcc"}, wire.PrefetchRequest{}, ending{4, 64, [3]uint32{2, 2}, fine, "", 10 * ms, "1111"}},
	{"remote before disk", script{at: "rrdd"}, wire.PrefetchRequest{}, ending{4, 64, [3]uint32{0, 2, 2}, fine, "", 30 * ms, "1111"}},
	{"gap in DRAM", script{at: "cc.cc"}, wire.PrefetchRequest{}, ending{2, 32, [3]uint32{2}, fine, "", 0, "11011"}},
	{"gap behind disk", script{at: "dd.dd"}, wire.PrefetchRequest{}, ending{2, 32, [3]uint32{0, 2}, fine, "", 10 * ms, "11000"}},
	{"gap at the start", script{at: ".cdr"}, wire.PrefetchRequest{}, ending{0, 0, [3]uint32{}, fine, "", 0, "0100"}},
	{"one chunk", script{at: "d"}, wire.PrefetchRequest{}, ending{1, 16, [3]uint32{0, 1}, fine, "", 10 * ms, "1"}},
	{"nine on disk", script{at: "ddddddddd"}, wire.PrefetchRequest{}, ending{9, 144, [3]uint32{0, 9}, fine, "", 10 * ms, "111111111"}},
	{"nine on disk, a window of four", script{at: "ddddddddd", o: Prefetch{WindowBytes: 4 * scriptSize}}, wire.PrefetchRequest{}, ending{9, 144, [3]uint32{0, 9}, fine, "", 30 * ms, "111111111"}},

	// A short last chunk counts its exact tokens.
	{"partial in DRAM", script{at: "ccc", last: 5}, wire.PrefetchRequest{}, ending{3, 37, [3]uint32{3}, fine, "", 0, ""}},
	{"partial on disk", script{at: "ccd", last: 5}, wire.PrefetchRequest{}, ending{3, 37, [3]uint32{2, 1}, fine, "", 10 * ms, ""}},
	{"partial in the remote tier", script{at: "ddr", last: 1}, wire.PrefetchRequest{}, ending{3, 33, [3]uint32{0, 2, 1}, fine, "", 30 * ms, ""}},
	{"partial alone", script{at: "d", last: 3}, wire.PrefetchRequest{}, ending{1, 3, [3]uint32{0, 1}, fine, "", 10 * ms, ""}},
	{"partial missing", script{at: "dd.", last: 3}, wire.PrefetchRequest{}, ending{2, 32, [3]uint32{0, 2}, fine, "", 10 * ms, ""}},
	{"partial fails", script{at: "ddd", do: "..x", last: 3}, wire.PrefetchRequest{}, ending{2, 32, [3]uint32{0, 2}, failed, "disk", 10 * ms, "110"}},

	// Short delivery: a chunk that was promised and is not given ends the prefix.
	{"3, 2, 2, and the first gives 1", script{at: "dddrrdd", do: ".ll"}, wire.PrefetchRequest{}, ending{1, 16, [3]uint32{0, 1}, gap, "", 10 * ms, ""}},
	{"3, 2, 2, and the second gives 1", script{at: "cccddrr", do: "....l"}, wire.PrefetchRequest{}, ending{4, 64, [3]uint32{3, 1}, gap, "", 10 * ms, "11110??"}},
	{"3, 2, 2, and the third gives 1", script{at: "cccddrr", do: "......l"}, wire.PrefetchRequest{}, ending{6, 96, [3]uint32{3, 2, 1}, gap, "", 30 * ms, "1111110"}},
	{"disk lost the first", script{at: "dddd", do: "l"}, wire.PrefetchRequest{}, ending{0, 0, [3]uint32{}, gap, "", 10 * ms, "0???"}},
	{"disk lost the last", script{at: "dddd", do: "...l"}, wire.PrefetchRequest{}, ending{3, 48, [3]uint32{0, 3}, gap, "", 10 * ms, "1110"}},
	{"disk lost all", script{at: "dddd", do: "llll"}, wire.PrefetchRequest{}, ending{0, 0, [3]uint32{}, gap, "", 10 * ms, "0000"}},
	{"disk lost one that remote has", script{at: "dbdd", do: ".l"}, wire.PrefetchRequest{}, ending{4, 64, [3]uint32{0, 3, 1}, fine, "", 40 * ms, "1111"}},
	{"both lost one", script{at: "dbdd", do: ".L"}, wire.PrefetchRequest{}, ending{1, 16, [3]uint32{0, 1}, gap, "", 40 * ms, "10??"}},
	{"remote lost one", script{at: "crrr", do: "..l"}, wire.PrefetchRequest{}, ending{2, 32, [3]uint32{1, 0, 1}, gap, "", 30 * ms, "110?"}},

	// Failures at the i-th chunk.
	{"disk fails at once", script{at: "dddd", do: "x"}, wire.PrefetchRequest{}, ending{0, 0, [3]uint32{}, failed, "disk", 10 * ms, "0???"}},
	{"disk fails at 1", script{at: "dddd", do: ".x"}, wire.PrefetchRequest{}, ending{1, 16, [3]uint32{0, 1}, failed, "disk", 10 * ms, "10??"}},
	{"disk fails at 3", script{at: "dddd", do: "...x"}, wire.PrefetchRequest{}, ending{3, 48, [3]uint32{0, 3}, failed, "disk", 10 * ms, "1110"}},
	{"disk fails behind the window", script{at: "dddddd", do: "....x", o: Prefetch{WindowBytes: 4 * scriptSize}}, wire.PrefetchRequest{}, ending{4, 64, [3]uint32{0, 4}, failed, "disk", 20 * ms, "11110?"}},
	{"disk fails in all", script{at: "dddd", do: "xxxx"}, wire.PrefetchRequest{}, ending{0, 0, [3]uint32{}, failed, "disk", 10 * ms, "0000"}},
	{"remote fails at once", script{at: "rrr", do: "x"}, wire.PrefetchRequest{}, ending{0, 0, [3]uint32{}, failed, "remote", 30 * ms, "0??"}},
	{"remote fails behind disk", script{at: "ddrr", do: "..x"}, wire.PrefetchRequest{}, ending{2, 32, [3]uint32{0, 2}, failed, "remote", 30 * ms, "110?"}},
	{"disk fails, remote serves", script{at: "bbbb", do: ".x"}, wire.PrefetchRequest{}, ending{4, 64, [3]uint32{0, 3, 1}, fine, "", 40 * ms, "1111"}},
	{"both fail", script{at: "bbbb", do: "..X"}, wire.PrefetchRequest{}, ending{2, 32, [3]uint32{0, 2}, failed, "remote", 40 * ms, "110?"}},
	{"remote does not say what it has", script{at: "....", find: tier.ErrHung}, wire.PrefetchRequest{}, ending{0, 0, [3]uint32{}, failed, "remote", 30 * ms, "0000"}},
	{"remote does not say, wait_complete", script{at: "....", find: tier.ErrHung}, wire.PrefetchRequest{Policy: wire.PolicyWaitComplete}, ending{0, 0, [3]uint32{}, failed, "remote", 30 * ms, "0000"}},
	{"remote does not say what is behind DRAM and disk", script{at: "cd..", find: tier.ErrHung}, wire.PrefetchRequest{}, ending{2, 32, [3]uint32{1, 1}, failed, "remote", 30 * ms, "1100"}},
	{"remote does not say, out of range", script{at: "cd..", find: tier.ErrHung}, wire.PrefetchRequest{Search: inCPU | onDisk}, ending{2, 32, [3]uint32{1, 1}, fine, "", 10 * ms, "1100"}},
	{"remote is off, nothing is here", script{at: "....", off: true}, wire.PrefetchRequest{}, ending{0, 0, [3]uint32{}, failed, "remote", 0, "0000"}},
	{"remote is off, wait_complete", script{at: "cc..", off: true}, wire.PrefetchRequest{Policy: wire.PolicyWaitComplete}, ending{2, 32, [3]uint32{2}, failed, "remote", 0, "1100"}},
	{"remote is off behind disk", script{at: "cd..", off: true}, wire.PrefetchRequest{}, ending{2, 32, [3]uint32{1, 1}, failed, "remote", 10 * ms, "1100"}},
	{"remote is off, all is here", script{at: "cd", off: true}, wire.PrefetchRequest{}, ending{2, 32, [3]uint32{1, 1}, fine, "", 10 * ms, "11"}},
	{"remote is off, out of range", script{at: "c..", off: true}, wire.PrefetchRequest{Search: inCPU}, ending{1, 16, [3]uint32{1}, fine, "", 0, "100"}},
	{"disk is off", script{at: "cddd", do: ".ooo"}, wire.PrefetchRequest{}, ending{1, 16, [3]uint32{1}, failed, "disk", 10 * ms, "1000"}},
	{"disk is off, remote serves", script{at: "cbb", do: ".oo"}, wire.PrefetchRequest{}, ending{3, 48, [3]uint32{1, 0, 2}, fine, "", 40 * ms, "111"}},
	{"the earlier failure counts though it comes later", script{at: "drdd", do: ".xl"}, wire.PrefetchRequest{}, ending{1, 16, [3]uint32{0, 1}, failed, "remote", 30 * ms, ""}},

	// Wrong bytes.
	{"corrupt on disk", script{at: "dddd", do: "..z"}, wire.PrefetchRequest{}, ending{2, 32, [3]uint32{0, 2}, corrupt, "", 10 * ms, "110?"}},
	{"corrupt in remote", script{at: "rrrr", do: "z"}, wire.PrefetchRequest{}, ending{0, 0, [3]uint32{}, corrupt, "", 30 * ms, "0???"}},
	{"corrupt on disk, good in remote", script{at: "dbd", do: ".z"}, wire.PrefetchRequest{}, ending{3, 48, [3]uint32{0, 2, 1}, fine, "", 40 * ms, "111"}},
	{"corrupt in both", script{at: "dbd", do: ".Z"}, wire.PrefetchRequest{}, ending{1, 16, [3]uint32{0, 1}, corrupt, "", 40 * ms, "10?"}},

	// The search range.
	{"DRAM only", script{at: "ccddrr"}, wire.PrefetchRequest{Search: inCPU}, ending{2, 32, [3]uint32{2}, fine, "", 0, "110000"}},
	{"not remote", script{at: "ccddrr"}, wire.PrefetchRequest{Search: inCPU | onDisk}, ending{4, 64, [3]uint32{2, 2}, fine, "", 10 * ms, "111100"}},
	{"not disk", script{at: "ccrrdd"}, wire.PrefetchRequest{Search: inCPU | inRemote}, ending{4, 64, [3]uint32{2, 0, 2}, fine, "", 30 * ms, "111100"}},
	{"remote copies only", script{at: "bbdd"}, wire.PrefetchRequest{Search: inRemote}, ending{2, 32, [3]uint32{0, 0, 2}, fine, "", 30 * ms, "1100"}},
	{"disk fails, remote is out of range", script{at: "bb", do: "x"}, wire.PrefetchRequest{Search: onDisk}, ending{0, 0, [3]uint32{}, failed, "disk", 10 * ms, "0?"}},

	// Deadlines.
	{"disk slower than the deadline", script{at: "cddd", do: ".sss"}, wire.PrefetchRequest{LoadMillis: 100}, ending{1, 16, [3]uint32{1}, late, "", 100 * ms, "1111"}},
	{"slow in the middle", script{at: "dddd", do: "..s"}, wire.PrefetchRequest{LoadMillis: 100}, ending{2, 32, [3]uint32{0, 2}, late, "", 100 * ms, "1111"}},
	{"slow first", script{at: "dddd", do: "s"}, wire.PrefetchRequest{LoadMillis: 100}, ending{0, 0, [3]uint32{}, late, "", 100 * ms, "1111"}},
	{"hangs at once", script{at: "dddd", do: "h"}, wire.PrefetchRequest{LoadMillis: 100}, ending{0, 0, [3]uint32{}, late, "", 100 * ms, "0111"}},
	{"hangs in the middle", script{at: "crdd", do: "..h"}, wire.PrefetchRequest{LoadMillis: 100}, ending{2, 32, [3]uint32{1, 0, 1}, late, "", 100 * ms, "1101"}},
	{"hangs for ever, everywhere", script{at: "bbbb", do: "HHHH"}, wire.PrefetchRequest{LoadMillis: 100}, ending{0, 0, [3]uint32{}, late, "", 100 * ms, "0000"}},
	{"the configured deadline", script{at: "dd", do: "hh", o: Prefetch{Deadline: 50 * ms}}, wire.PrefetchRequest{}, ending{0, 0, [3]uint32{}, late, "", 50 * ms, "00"}},
	{"per 1024 tokens", script{at: "cddd", do: ".hhh", o: Prefetch{Deadline: 50 * ms, Per1024Tokens: 1024 * ms}}, wire.PrefetchRequest{}, ending{1, 16, [3]uint32{1}, late, "", 98 * ms, "1000"}},
	{"just in time", script{at: "dd", o: Prefetch{Deadline: 11 * ms}}, wire.PrefetchRequest{}, ending{2, 32, [3]uint32{0, 2}, fine, "", 10 * ms, "11"}},
	{"wait_complete has none", script{at: "ddd", do: ".s"}, wire.PrefetchRequest{Policy: wire.PolicyWaitComplete, LoadMillis: 100}, ending{3, 48, [3]uint32{0, 3}, fine, "", slowTime, "111"}},
	{"wait_complete ends at a failure", script{at: "ddd", do: "sx"}, wire.PrefetchRequest{Policy: wire.PolicyWaitComplete}, ending{1, 16, [3]uint32{0, 1}, failed, "disk", slowTime, "10?"}},
	{"a failure before the deadline", script{at: "ddd", do: "xh"}, wire.PrefetchRequest{LoadMillis: 100}, ending{0, 0, [3]uint32{}, failed, "disk", 10 * ms, "00?"}},
	{"a failure behind the deadline", script{at: "ddd", do: "hx"}, wire.PrefetchRequest{LoadMillis: 100}, ending{0, 0, [3]uint32{}, late, "", 100 * ms, "001"}},

	// Room and budgets.
	{"a tier says there is no room", script{at: "ddd", do: ".n"}, wire.PrefetchRequest{}, ending{1, 16, [3]uint32{0, 1}, noSpace, "", 10 * ms, "10?"}},
	{"its own leases are used up", script{at: "dddd", limits: ledger.Limits{Lease: 2 * scriptSize}}, wire.PrefetchRequest{}, ending{2, 32, [3]uint32{0, 2}, over, "", 10 * ms, "11??"}},
	{"used up in DRAM", script{at: "cccc", limits: ledger.Limits{Lease: 2 * scriptSize}}, wire.PrefetchRequest{}, ending{2, 32, [3]uint32{2}, over, "", 0, "1111"}},
	{"used up behind DRAM", script{at: "ccdd", limits: ledger.Limits{Lease: 3 * scriptSize}}, wire.PrefetchRequest{}, ending{3, 48, [3]uint32{2, 1}, over, "", 10 * ms, "111?"}},
	{"loads one after the other", script{at: "dddd", limits: ledger.Limits{Load: scriptSize}}, wire.PrefetchRequest{}, ending{4, 64, [3]uint32{0, 4}, fine, "", -1, "1111"}},
	{"a window of one chunk", script{at: "dddddd", o: Prefetch{WindowBytes: 1}}, wire.PrefetchRequest{}, ending{6, 96, [3]uint32{0, 6}, fine, "", 60 * ms, "111111"}},

	// Deleted under way.
	{"deleted before its load", script{at: "dddd", forget: []int{1}}, wire.PrefetchRequest{}, ending{1, 16, [3]uint32{0, 1}, gap, "", -1, "10??"}},
	{"deleted first", script{at: "dddd", forget: []int{0}}, wire.PrefetchRequest{}, ending{0, 0, [3]uint32{}, gap, "", -1, "0???"}},
}

func TestScripts(t *testing.T) {
	for _, c := range scripts {
		t.Run(c.name, func(t *testing.T) {
			play(t, c.script, func(t *testing.T, g *stage) {
				start := time.Now()
				if len(c.forget) > 0 {
					g.deleteUnderWay(c.forget)
				}
				j := g.prefetch(&c.req)
				g.done(j)
				took := time.Since(start)
				if c.want.after >= 0 && took != c.want.after {
					t.Errorf("done after %s; want %s", took, c.want.after)
				}
				g.checkEnding(j, &c.want)
				g.checkBytes(j)
				time.Sleep(10 * slowTime) // after a deadline, loads under way go on into the cache
				g.checkCached(c.want.cached)
				g.checkEnding(j, &c.want) // for good
				var r wire.ReleaseReply
				if body := g.send(wire.OpRelease, &wire.IDRequest{ID: j.id}); r.Decode(body) != nil || r.Code != wire.CodeOK {
					t.Errorf("release: %x", body)
				}
				if n := g.hot.Ledger().Stats().ClassBytes[ledger.Lease]; n != 0 {
					t.Errorf("%d bytes leased after the release", n)
				}
			})
		})
	}
}

// checkCached compares the chunks in DRAM with want, if that is not empty. A
// question mark is a load behind the one that failed: that one has ended it,
// unless it was as fast.
func (g *stage) checkCached(want string) {
	g.t.Helper()
	got := g.cached()
	for i := range want {
		if want[i] != '?' && got[i] != want[i] {
			g.t.Errorf("in DRAM afterwards: %s; want %s", got, want)
			return
		}
	}
}

func (g *stage) checkEnding(j *job, want *ending) {
	g.t.Helper()
	s := j.state(0)
	if !s.Done() || s.Code != want.reason || s.FailedTier.String() != want.failed {
		g.t.Errorf("done %t, reason %s %q; want %s %q", s.Done(), s.Code, s.FailedTier, want.reason, want.failed)
	}
	if s.Ready.Chunks != want.ready || s.Ready.Tokens != want.tokens || s.Refs.Len() != int(want.ready) {
		g.t.Errorf("ready %+v with %d refs; want %d chunks with %d tokens", s.Ready, s.Refs.Len(), want.ready, want.tokens)
	}
	tokens := uint64(0)
	for p, n := range s.Tiers {
		if n.Chunks != want.from[p] {
			g.t.Errorf("%d chunks from tier %d; want %d", n.Chunks, p, want.from[p])
		}
		tokens += n.Tokens
	}
	if tokens != want.tokens {
		g.t.Errorf("%d tokens over the tiers; want %d", tokens, want.tokens)
	}
}

// A job reads no further ahead than loads may take of DRAM, whatever its window:
// chunks beyond its budget would be read for nothing, and again by the next job.
func TestWindowFitsLoads(t *testing.T) {
	s := script{at: strings.Repeat("d", 40), limits: ledger.Limits{Lease: 8 * scriptSize, Load: 2 * scriptSize}}
	play(t, s, func(t *testing.T, g *stage) {
		before := g.below[tier.Disk].Stats().Gets
		j := g.prefetch(&wire.PrefetchRequest{})
		g.done(j)
		if st := j.state(0); st.Code != over || st.Ready.Chunks != 8 {
			t.Errorf("%+v; want 8 chunks", st)
		}
		g.checkBytes(j)
		if n := g.below[tier.Disk].Stats().Gets - before; n > 8+2 {
			t.Errorf("%d chunks were read; want the 8 that the client may lease and at most 2 more", n)
		}
	})
}
