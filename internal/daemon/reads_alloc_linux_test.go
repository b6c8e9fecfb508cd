//go:build !race

package daemon

import (
	"math"
	"testing"

	"github.com/kvstored/kvstored/client"
)

// TestReadAllocatesNothing: a read of a chunk in DRAM allocates nothing. The race detector empties pools, so not under it.
func TestReadAllocatesNothing(t *testing.T) {
	cfg := smallConfig(t)
	serve(t, cfg)
	for _, s := range readSpaces() {
		c := reader(t, &cfg, s, client.Options{})
		p := promptOf(c, s, 3, 2, false)
		storeRun(t, c, p, 3, 0, 2, 4096, 0)
		dst := make([]byte, 4096)
		into := func(int, int) []byte { return dst }
		least := math.Inf(1)
		for try := 0; least >= 1 && try < 20; try++ { // the daemon allocates beside it, in the same process
			least = min(least, testing.AllocsPerRun(100, func() {
				if n, err := client.Read(t.Context(), c, p, client.ReadOptions{}, into); n != 2 || err != nil {
					t.Fatal(n, err)
				}
			}))
		}
		if least >= 1 { // what tells of 64 reads allocates
			t.Errorf("%s: %v", s.Method, least)
		}
	}
}
