package trace

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/e2e/daemon"
	"github.com/kvstored/kvstored/e2e/load"
	"github.com/kvstored/kvstored/lab/replay"
)

// traceFile is the real trace, where it is at hand.
func traceFile(t *testing.T) string {
	t.Helper()
	path := filepath.Join(daemon.Root(), "..", "shared", "traces", "conversation_trace.jsonl")
	if _, err := os.Stat(path); err != nil {
		t.Skipf("the conversation trace is not here: %v", err)
	}
	return path
}

var traceRequests = flag.Int("trace-requests", 400, "how many requests TestTrace plays; 0 = all, which takes 12 GB of disk and a minute")

// Played through the socket by one client, every prompt hits exactly the chunks
// stored before it: nothing is lost, nothing is wrong.
func TestTrace(t *testing.T) {
	path := traceFile(t)
	want := hitsWithoutLoss(t, path, *traceRequests)
	d := load.Folder(t, 512<<20, 20<<30)
	d.Start()
	for _, clients := range []int{1, 8} {
		if clients > 1 && *traceRequests == 0 {
			continue // a second run would find everything there
		}
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		r, err := replay.Run(t.Context(), replay.Options{
			Socket: d.Socket, Trace: f, Name: path, BlockTokens: 512, Limit: *traceRequests, Concurrency: clients,
			PayloadBytes: 64 << 10, SaveUnfull: true, Policy: client.WaitComplete,
		})
		if err != nil {
			t.Fatal(err)
		}
		if r.Mismatches != 0 || r.DiffersBlocks != 0 {
			t.Errorf("%d clients: %d mismatches, %d differing", clients, r.Mismatches, r.DiffersBlocks)
		}
		if clients == 1 && r.TotalHitTokens != want {
			t.Errorf("%d hit tokens; want exactly %d", r.TotalHitTokens, want)
		}
		if clients == 8 && r.TotalHitTokens < want {
			t.Errorf("8 clients: %d hit tokens the second time; want at least %d", r.TotalHitTokens, want)
		}
		if !r.DaemonAgrees() {
			t.Errorf("%d clients: the daemon counted otherwise: %+v", clients, r.Daemon)
		}
		t.Logf("%d clients: %d tokens hit of %d", clients, r.TotalHitTokens, r.TotalPromptTokens)
	}
}

// hitsWithoutLoss is what a cache that never loses anything hits.
func hitsWithoutLoss(t *testing.T, path string, limit int) int64 {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	seen := make(map[uint64]bool)
	total, n := int64(0), 0
	for req, err := range replay.Requests(f, path, replay.Form{BlockTokens: 512}) {
		if err != nil {
			t.Fatal(err)
		}
		if limit > 0 && n == limit {
			break
		}
		n++
		k := 0
		for k < len(req.BlockIDs) && seen[req.BlockIDs[k]] {
			k++
		}
		total += int64(min(k*512, req.InputTokens))
		for _, id := range req.BlockIDs {
			seen[id] = true
		}
	}
	return total
}
