package arena

import (
	"fmt"
	"testing"
)

func BenchmarkWrite(b *testing.B) {
	for _, n := range []int{64 << 10, 256 << 10, 1 << 20, 4 << 20} {
		b.Run(fmt.Sprintf("%dKiB", n>>10), func(b *testing.B) {
			const total = 512 << 20
			a := newTest(b, Options{CapacityBytes: total, Touch: Touch})
			if err := a.Populate(b.Context()); err != nil {
				b.Fatal(err)
			}
			src := make([]byte, total) // cold, like payloads are
			for i := 0; i < len(src); i += 4096 {
				src[i] = 1
			}
			var blocks []Block
			for range total / n {
				blk, err := a.Alloc(n)
				if err != nil {
					b.Fatal(err)
				}
				blocks = append(blocks, blk)
			}
			b.Run("write", func(b *testing.B) {
				b.SetBytes(int64(n))
				b.ReportAllocs()
				for i := 0; b.Loop(); i = (i + 1) % len(blocks) {
					blocks[i].Write(src[i*n : (i+1)*n])
				}
			})
			b.Run("copy", func(b *testing.B) {
				b.SetBytes(int64(n))
				for i := 0; b.Loop(); i = (i + 1) % len(blocks) {
					copy(blocks[i].Bytes(), src[i*n:(i+1)*n])
				}
			})
			b.Run("hash", func(b *testing.B) {
				b.SetBytes(int64(n))
				for i := 0; b.Loop(); i = (i + 1) % len(blocks) {
					Checksum(blocks[i].Bytes())
				}
			})
			for _, blk := range blocks {
				blk.Release()
			}
		})
	}
}

func BenchmarkAllocRelease(b *testing.B) {
	a := newTest(b, Options{CapacityBytes: 1 << 30})
	b.ReportAllocs()
	for b.Loop() {
		blk, err := a.Alloc(1 << 20)
		if err != nil {
			b.Fatal(err)
		}
		blk.Release()
	}
}
