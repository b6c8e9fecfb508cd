package arena

import (
	"bytes"
	"math/rand/v2"
	"sync"
	"testing"
)

// Bytes arrive by each way, in any number of goroutines.
func TestWayIsExact(t *testing.T) {
	ways(t, func(t *testing.T) {
		var w CopyWay
		var all sync.WaitGroup
		for seed := range uint64(3) {
			all.Go(func() {
				r := rand.New(rand.NewPCG(seed, 1))
				src, dst := randomBytes(r, 80<<10), make([]byte, 80<<10)
				for i := range 2 * trialEvery {
					n := streamedBytes - 64 + i%129
					src[i] ^= 1
					if got := w.Copy(dst[:n], src); got != n || !bytes.Equal(dst[:n], src[:n]) {
						t.Errorf("copy %d of %d bytes said %d, or differs", i, n, got)
						return
					}
				}
			})
		}
		all.Wait()
	})
}
