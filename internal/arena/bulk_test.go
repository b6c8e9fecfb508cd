package arena

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/zeebo/xxh3"

	"github.com/kvstored/kvstored/internal/base"
)

// The ways a processor can have, as far as this one has them.
func ways(t *testing.T, f func(t *testing.T)) {
	hadVectors, hadStreams := vectors, streams
	for _, way := range []struct{ vectors, streams bool }{{false, false}, {true, false}, {true, true}} {
		if way.vectors && !hadVectors {
			continue
		}
		t.Run(fmt.Sprintf("vectors=%t,streams=%t", way.vectors, way.streams), func(t *testing.T) {
			setWay(way.vectors, way.streams)
			defer setWay(hadVectors, hadStreams)
			f(t)
		})
	}
}

func randomBytes(r *rand.Rand, n int) []byte {
	p := make([]byte, n+8)
	for i := 0; i < n; i += 8 {
		binary.LittleEndian.PutUint64(p[i:], r.Uint64())
	}
	return p[:n]
}

// Lengths around each limit of the hash and of the copies.
var edges = []int{0, 1, 16, 17, 128, 129, 240, 241, 1023, 1024, 1025, 1088, 1089, 2048, 2049, 3072, 65535, 65536, 65537, 262144, 262145, 600001}

func TestCopiesAreExact(t *testing.T) {
	ways(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(1, 2))
		src := randomBytes(r, 1<<20)
		for _, n := range edges {
			for _, shift := range []int{0, 1, 32, 63} {
				for name, copies := range map[string]func(dst, src []byte) int{"Copy": Copy, "CopyCold": CopyCold} {
					dst := bytes.Repeat([]byte{0xA5}, n+256)
					if got := copies(dst[shift:][:n], src[shift/2:]); got != n {
						t.Fatalf("%s of %d bytes said %d", name, n, got)
					}
					checkMoved(t, dst, src[shift/2:][:n], shift)
					if got := copies(dst[shift:][:n], src[:n/2]); got != n/2 {
						t.Fatalf("%s of %d bytes into %d said %d", name, n/2, n, got)
					}
				}
				dst := bytes.Repeat([]byte{0xA5}, n+256)
				if got, want := CopySum(dst[shift:][:n], src[shift/2:][:n]), xxh3.Hash(src[shift/2:][:n]); got != want {
					t.Fatalf("CopySum of %d bytes is %x, want %x", n, got, want)
				}
				checkMoved(t, dst, src[shift/2:][:n], shift)
			}
		}
	})
}

// checkMoved compares what lies at shift with src, and that nothing else changed.
func checkMoved(t *testing.T, dst, src []byte, shift int) {
	t.Helper()
	if !bytes.Equal(dst[shift:][:len(src)], src) {
		t.Fatalf("%d bytes at %d differ", len(src), shift)
	}
	for i, b := range dst {
		if (i < shift || i >= shift+len(src)) && b != 0xA5 {
			t.Fatalf("a copy of %d bytes at %d wrote to %d", len(src), shift, i)
		}
	}
}

// 10^5 lengths, each arriving in cuts of its own, against the library's one call.
func TestRunningEqualsOneCall(t *testing.T) {
	n := 100_000
	if testing.Short() {
		n = 5_000
	}
	ways(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(3, 4))
		src, dst := randomBytes(r, 300<<10), make([]byte, 300<<10)
		for i := range n {
			size := r.IntN(4 << 10)
			switch {
			case i < 8192:
				size = i
			case i%64 == 0:
				size = r.IntN(len(src))
			}
			shift := r.IntN(min(64, len(src)-size+1))
			p := dst[shift:][:size]
			want := xxh3.Hash(src[:size])
			if got := arrive(r, p, src[:size]); got != want {
				t.Fatalf("%d bytes at %d: %x, want %x", size, shift, got, want)
			}
			if !bytes.Equal(p, src[:size]) {
				t.Fatalf("%d bytes at %d did not arrive", size, shift)
			}
			clear(p)
		}
	})
}

// arrive brings src into p in random cuts, some copied, some announced.
func arrive(r *rand.Rand, p, src []byte) uint64 {
	sum, largest := SumOver(p), 1+r.IntN(1+2*len(p))
	for at := 0; at < len(src); {
		n := min(len(src)-at, r.IntN(largest+1))
		if r.IntN(2) == 0 {
			sum.Copy(src[at:][:n])
		} else {
			copy(p[at:], src[at:][:n])
			sum.Arrived(n)
		}
		at += n
	}
	return sum.Sum()
}

// Bytes are hashed when they have arrived, while they are hot: at most the last block
// is left to Sum, whether a copy brings them or the caller.
func TestHashedAsTheyArrive(t *testing.T) {
	ways(t, func(t *testing.T) {
		if !vectors {
			t.Skip("everything is hashed at the end here")
		}
		const size = 1<<20 + 17
		src, dst := make([]byte, size), make([]byte, size)
		for name, bring := range map[string]func(r *RunningSum, p []byte){
			"copied":    (*RunningSum).Copy,
			"announced": func(r *RunningSum, p []byte) { r.Arrived(len(p)) },
		} {
			r := SumOver(dst)
			for part := range slices.Chunk(src, 100_001) {
				bring(&r, part)
				if left := r.arrived - r.hashed; left < 0 || left > blockBytes {
					t.Errorf("%s: of %d bytes %d are not hashed", name, r.arrived, left)
				}
			}
			if r.arrived != size {
				t.Errorf("%s: %d bytes have arrived", name, r.arrived)
			}
		}
	})
}

func TestWrongCallsPanic(t *testing.T) {
	p := make([]byte, 2000)
	for name, wrong := range map[string]func(){
		"Sum of what has not arrived": func() { r := SumOver(p); r.Arrived(1999); r.Sum() },
		"more than there is room for": func() { r := SumOver(p); r.Arrived(2001) },
		"a copy past the end":         func() { r := SumOver(p); r.Arrived(1); r.Copy(p) },
		"a negative count":            func() { r := SumOver(p); r.Arrived(-1) },
		"CopySum of other lengths":    func() { CopySum(p, p[:1999]) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			wrong()
		})
	}
}

// In production such a call brings nothing, and a sum is that of what is in the buffer.
func TestWrongCallsAreCounted(t *testing.T) {
	t.Cleanup(base.SurviveBroken())
	before := base.BrokenCount()
	p, src := make([]byte, 2000), randomBytes(rand.New(rand.NewPCG(7, 8)), 2000)
	r := SumOver(p)
	r.Copy(src[:1500])
	r.Copy(src)
	r.Arrived(501)
	r.Arrived(-1)
	if got, want := r.Sum(), xxh3.Hash(p); got != want {
		t.Errorf("the sum of a part is %x, want %x", got, want)
	}
	if n := base.BrokenCount() - before; n != 4 {
		t.Errorf("%d wrong calls are counted, want 4", n)
	}
	r.Copy(src[1500:])
	if got, want := r.Sum(), xxh3.Hash(src); got != want {
		t.Errorf("the sum of all is %x, want %x", got, want)
	}
}

func TestNothingAllocates(t *testing.T) {
	src, dst := make([]byte, 1<<20), make([]byte, 1<<20)
	if n := testing.AllocsPerRun(10, func() { CopySum(dst, src); CopyCold(dst, src); Copy(dst, src) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkCopySum(b *testing.B) {
	const total = 256 << 20
	src, dst := randomBytes(rand.New(rand.NewPCG(5, 6)), total), make([]byte, total)
	clear(dst)
	for _, n := range []int{64 << 10, 256 << 10, 1 << 20, 4 << 20} {
		walk := func(name string, f func(dst, src []byte)) {
			b.Run(fmt.Sprintf("%s/%dKiB", name, n>>10), func(b *testing.B) {
				b.SetBytes(int64(n))
				for i := 0; b.Loop(); i = (i + n) % total {
					f(dst[i:][:n], src[i:][:n])
				}
			})
		}
		walk("copy then hash", func(dst, src []byte) { copy(dst, src); Sum(dst) })
		walk("CopySum", func(dst, src []byte) { CopySum(dst, src) })
		walk("copy", func(dst, src []byte) { copy(dst, src) })
		walk("Copy", func(dst, src []byte) { Copy(dst, src) })
		walk("CopyCold", func(dst, src []byte) { CopyCold(dst, src) })
		walk("hash", func(dst, src []byte) { Sum(src) })
	}
}
