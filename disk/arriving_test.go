package disk

import (
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/kvstored/kvstored/disk/internal/blockio"
	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/bulk"
)

// However the pieces of a payload come, its checksum is that of the whole, and a byte
// that differs shows.
func TestArriving(t *testing.T) {
	const mib = 1 << 20
	rng := rand.New(rand.NewPCG(3, 4))
	memory := make([]byte, arena.MaxPayload)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(memory[:9*mib])
	for _, n := range []int{1, 4096, mib - 1, mib, mib + 1, 4*mib - 100, 4 * mib, 4*mib + 1, 9*mib - 4000, arena.MaxPayload} {
		p := memory[:n]
		for range 4 {
			want := arena.Checksum(p)
			changed := rng.IntN(2) == 1
			at := rng.IntN(n)
			if changed {
				p[at]++
			}
			a := arriving{sum: bulk.Over(p), bytes: n}
			pieces := rng.Perm((n + blockio.PieceBytes - 1) / blockio.PieceBytes)
			workers := 1 + rng.IntN(4)
			var all sync.WaitGroup
			for w := range workers {
				all.Go(func() {
					for i := w; i < len(pieces); i += workers {
						from := pieces[i] * blockio.PieceBytes
						a.Landed(from, min(from+blockio.PieceBytes, (n+4095)&^4095))
					}
				})
			}
			all.Wait()
			if got := a.sum.Sum(); (got != want) != changed {
				t.Errorf("%d bytes by %d workers in the order %v, changed %t: checksum %x of %x", n, workers, pieces, changed, got, want)
			}
			if changed {
				p[at]--
			}
		}
	}
}
