package replay

import (
	"testing"
	"time"

	"github.com/kvstored/kvstored/client"
)

func TestPercentiles(t *testing.T) {
	var l Latencies
	if l.Percentile(50) != 0 {
		t.Error("a percentile of nothing")
	}
	for i := 100; i > 0; i-- {
		l.Add(time.Duration(i))
	}
	for p, want := range map[float64]time.Duration{0: 1, 1: 1, 50: 50, 99: 99, 99.5: 100, 100: 100} {
		if got := l.Percentile(p); got != want {
			t.Errorf("percentile %v of 1 to 100 is %d, want %d", p, got, want)
		}
	}
	l.Add(1000)
	if got := l.Percentile(100); got != 1000 {
		t.Errorf("the largest is %d after a larger one came", got)
	}
}

func count(chunks uint32, tokens uint64) client.Count {
	return client.Count{Chunks: chunks, Tokens: tokens}
}

// TestTally: which numbers are added up, and which are counted apart.
func TestTally(t *testing.T) {
	tally := NewTally()
	tally.Add(&Outcome{
		Tokens: 1000, Chunks: 4, Matched: count(3, 768), Hit: count(3, 768),
		Tiers: client.TierCounts{count(1, 256), count(2, 512)}, Lookup: 10, Ready: 40,
		ReadBytes: 3e8, WrittenBytes: 1e8, Stored: 1,
	})
	tally.Add(&Outcome{Tokens: 1000, Chunks: 4, Matched: count(2, 512), Hit: count(1, 256), Tiers: client.TierCounts{count(1, 256)}, Reason: client.StoppedDeadline, Lookup: 20, Ready: 20})
	tally.Add(&Outcome{Tokens: 1000, Chunks: 4, Matched: count(2, 512), Revoked: true, Lookup: 20, Ready: 20})
	tally.Add(&Outcome{Tokens: 10})
	r := tally.Result(2 * time.Second)
	if r.Requests != 4 || r.TotalPromptTokens != 3010 || r.TotalHitTokens != 1024 || r.BlockAccesses != 12 || r.BlockHits != 4 {
		t.Errorf("sums: %+v", r)
	}
	if r.HitTokens["cpu"] != 512 || r.HitTokens["disk"] != 512 || r.HitBlocks["disk"] != 2 {
		t.Errorf("tiers: %v, %v", r.HitTokens, r.HitBlocks)
	}
	if r.ShortRequests != 1 || r.ShortReasons["timeout"] != 1 || r.RevokedRequests != 1 {
		t.Errorf("%d short (%v), %d revoked", r.ShortRequests, r.ShortReasons, r.RevokedRequests)
	}
	if r.GBPerSecond != 0.2 || r.ColdReadyP50 != 0.04 || r.LookupP50 != 0.02 {
		t.Errorf("speed: %+v", r)
	}
	if !r.OK() {
		t.Error("nothing was wrong")
	}
	tally.Add(&Outcome{Tokens: 1, Chunks: 20, Mismatches: make([]Mismatch, 2*maxMismatches)})
	if r := tally.Result(time.Second); r.OK() || r.Mismatches != 2*maxMismatches || len(r.Wrong) != maxMismatches {
		t.Errorf("%d mismatches counted, %d named, OK %v", r.Mismatches, len(r.Wrong), r.OK())
	}
}

func TestDaemonAgrees(t *testing.T) {
	counts := func() *DaemonCounts {
		return &DaemonCounts{
			AskedChunks: 4, StoredChunks: 1, StoredBytes: 100,
			HitTokens: map[string]int64{"cpu": 256, "disk": 512}, HitChunks: map[string]int64{"cpu": 1, "disk": 2},
		}
	}
	r := Result{
		BlockAccesses: 4, StoredBlocks: 1, BytesWritten: 100,
		HitTokens: map[string]int64{"cpu": 256, "disk": 512}, HitBlocks: map[string]int64{"cpu": 1, "disk": 2},
	}
	before := counts()
	after := counts()
	after.AskedChunks, after.StoredChunks, after.StoredBytes = 8, 2, 200
	after.HitTokens = map[string]int64{"cpu": 512, "disk": 1024}
	after.HitChunks = map[string]int64{"cpu": 2, "disk": 4}
	if d := after.since(before); !d.agrees(&r) {
		t.Errorf("%+v does not agree with %+v", d, r)
	}
	for what, change := range map[string]func(*DaemonCounts){
		"asked chunks":  func(d *DaemonCounts) { d.AskedChunks++ },
		"stored chunks": func(d *DaemonCounts) { d.StoredChunks++ },
		"stored bytes":  func(d *DaemonCounts) { d.StoredBytes++ },
		"hit tokens":    func(d *DaemonCounts) { d.HitTokens["disk"]++ },
		"hit chunks":    func(d *DaemonCounts) { d.HitChunks["cpu"]-- },
	} {
		d := counts()
		change(d)
		if d.agrees(&r) {
			t.Errorf("%s differ and it agrees", what)
		}
	}
}

func TestReadyByTier(t *testing.T) {
	tally := NewTally()
	for i, ts := range []client.TierCounts{{}, {count(1, 16)}, {count(1, 16), count(1, 16)}, {{}, count(2, 32)}, {{}, {}, count(1, 16)}} {
		tally.Add(&Outcome{Chunks: 3, Tiers: ts, Ready: time.Duration(i+1) * time.Microsecond})
	}
	r := tally.Result(time.Second)
	for name, want := range map[string]Spread{
		"none": {1, 1, 1, 1, 1}, "cpu": {1, 2, 2, 2, 2}, "disk": {2, 3, 4, 4, 4}, "remote": {1, 5, 5, 5, 5},
	} {
		if got := r.ReadyBy[name]; got != want {
			t.Errorf("ready from %s: %+v; want %+v", name, got, want)
		}
	}
}
