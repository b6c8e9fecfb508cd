package disk

import (
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/zeebo/xxh3"

	"github.com/kvstored/kvstored/disk/internal/blockio"
	"github.com/kvstored/kvstored/internal/arena"
)

// Pieces may land in any order, several at a time: the checksum is that of one call.
func TestPiecesLandInAnyOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		random := rand.New(rand.NewPCG(1, 1))
		p := make([]byte, 7*blockio.PieceBytes+12345)
		for i := range p {
			p[i] = byte(random.Uint32())
		}
		for round := range 20 {
			size := len(p) - round*blockio.PieceBytes/3
			pieces := (size + blockio.PieceBytes - 1) / blockio.PieceBytes
			a := arriving{sum: arena.SumOver(p[:size]), bytes: size}
			var all sync.WaitGroup
			for _, i := range random.Perm(pieces) {
				from := i * blockio.PieceBytes
				land := func() { a.Landed(from, min(size, from+blockio.PieceBytes)) }
				if round%2 == 0 {
					land()
				} else {
					all.Go(land)
				}
			}
			all.Wait()
			if got, want := a.sum.Sum(), xxh3.Hash(p[:size]); got != want {
				t.Errorf("%d pieces have the checksum %x, want %x", pieces, got, want)
			}
		}
	})
}

// A piece is hashed as soon as all before it have landed, and not at the end: what
// happens to its bytes later does not show.
func TestPiecesAreHashedAsTheyLand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if !hashesInPieces() {
			t.Skip("this processor hashes at the end")
		}
		p := make([]byte, 4*blockio.PieceBytes)
		want := xxh3.Hash(p)
		a := arriving{sum: arena.SumOver(p), bytes: len(p)}
		landed := func(i int) { a.Landed(i*blockio.PieceBytes, (i+1)*blockio.PieceBytes) }
		landed(1)
		landed(0) // and both are hashed
		copy(p, "later")
		copy(p[blockio.PieceBytes:], "later")
		landed(3)
		landed(2)
		if got := a.sum.Sum(); got != want {
			t.Error("pieces were hashed later than they had landed")
		}
	})
}

// hashesInPieces reports whether a byte that has arrived is hashed before the last one.
func hashesInPieces() bool {
	p := make([]byte, blockio.PieceBytes)
	want, sum := xxh3.Hash(p), arena.SumOver(p)
	sum.Arrived(len(p) - 1)
	p[0] = 1
	sum.Arrived(1)
	return sum.Sum() == want
}
