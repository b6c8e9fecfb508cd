package kills

import (
	"context"
	"flag"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kvstored/kvstored/e2e/daemon"
	"github.com/kvstored/kvstored/key"
)

var kills = flag.Int("kills", 4, "how often TestKilledKeepsDRAM kills the daemon; 200 for a long run")

// settledBefore is how long before a kill a chunk is acknowledged that is to be there.
const settledBefore = 100 * time.Millisecond

// settled are the chains that were acknowledged a while before a moment.
func (tr *traffic) settled(at time.Time) (chains []*key.Chain) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	for i, chain := range tr.mu.chains {
		if at.Sub(tr.mu.at[i]) >= settledBefore {
			chains = append(chains, chain)
		}
	}
	return chains
}

// A daemon that is killed amid puts finds its DRAM again, and no byte of it is wrong, nor is
// a connect refused. Without a disk nothing else could have the chunks.
func TestKilledKeepsDRAM(t *testing.T) {
	d, k := keptDaemon(t, 0)
	d.Start()
	tr := newTraffic(d)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var clients sync.WaitGroup
	for i := range trafficClients {
		clients.Go(func() { tr.run(ctx, t, rand.New(rand.NewPCG(2, uint64(i)))) })
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	found, asked := 0, 0
	for round := range *kills {
		time.Sleep(time.Duration(rng.Int64N(int64(400 * time.Millisecond)))) // the moment of the kill
		at := time.Now()
		d.Kill()
		d.Start()
		there, all := tr.count(t, tr.settled(at))
		if there < all {
			t.Fatalf("round %d: %d of %d chunks are in DRAM", round, there, all)
		}
		found, asked = found+there, asked+all
	}
	stop()
	clients.Wait()
	t.Logf("%d kills, %d requests answered; %d of %d chunks were in DRAM", *kills, tr.mu.answers, found, asked)
	if asked == 0 {
		t.Error("nothing was stored")
	}
	wantStopsKeeping(t, d, k, tr)
}

// wantStopsKeeping says that DRAM outlives a stop too, and goes with the keeper.
func wantStopsKeeping(t *testing.T, d, k *daemon.Daemon, tr *traffic) {
	t.Helper()
	for _, keeping := range []bool{true, false} {
		d.Stop()
		if !keeping {
			k.Stop()
			if _, err := os.Stat(k.Socket); err == nil {
				t.Error("the socket of the keeper stays")
			}
		}
		d.Start()
		switch there, all := tr.there(t); {
		case keeping && there < all:
			t.Errorf("after a stop %d of %d chunks are in DRAM", there, all)
		case !keeping && there > 0:
			t.Errorf("without a keeper %d of %d chunks are in DRAM", there, all)
		}
	}
	if !strings.Contains(d.Said(), "serve --keeper does not listen") {
		t.Error("the log does not say what would have kept DRAM")
	}
}
