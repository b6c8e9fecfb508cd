package disk

import (
	"context"
	"fmt"
	"testing"

	"github.com/kvstored/kvstored/disk/internal/metadata"
	"github.com/kvstored/kvstored/internal/database"
	"github.com/kvstored/kvstored/tier"
)

var benchSizes = []int{512, 4 << 10, 64 << 10, 256 << 10, mib, 4 * mib}

func benchTier(b *testing.B) (*rig, memory) {
	o := testOptions(b.TempDir())
	o.Database = nil // a process, as the daemon's
	o.CapacityBytes, o.MetaReserveBytes, o.SegmentBytes = 1100*mib, 64*mib, 256*mib
	d, _ := start(b, o, nil)
	return d, newMemory(b)
}

// benchWriters are as many as the daemon's.
const benchWriters = 32

// BenchmarkPut stores from many callers, and evicts once the tier is full.
func BenchmarkPut(b *testing.B) {
	for _, size := range benchSizes {
		b.Run(fmt.Sprintf("%dB", size), func(b *testing.B) {
			d, m := benchTier(b)
			e := entryOf(b, m, 0, size)
			b.SetBytes(int64(size))
			b.ResetTimer()
			next := make(chan int)
			done := make(chan error)
			for range benchWriters {
				go func() {
					for i := range next {
						e := e
						e.Key = keyOf(i)
						err := d.Put(context.Background(), e)
						if err != nil {
							if _, err = d.Trim(context.Background(), int64(size), nil); err == nil {
								err = d.Put(context.Background(), e)
							}
						}
						if err != nil {
							done <- err
							return
						}
					}
					done <- nil
				}()
			}
			for i := range b.N {
				next <- i
			}
			close(next)
			for range benchWriters {
				if err := <-done; err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkGet reads a chain in order with four Gets under way.
func BenchmarkGet(b *testing.B) {
	for _, size := range benchSizes {
		b.Run(fmt.Sprintf("%dB", size), func(b *testing.B) {
			d, m := benchTier(b)
			n := min(512*mib/size, 20_000)
			for i := range n {
				mustPut(b, d, m, i, size)
			}
			b.SetBytes(int64(size))
			b.ResetTimer()
			next := make(chan int)
			done := make(chan error)
			for range 4 {
				go func() {
					for i := range next {
						block, err := d.Get(context.Background(), keyOf(i%n), m)
						if err != nil {
							done <- err
							return
						}
						block.Release()
					}
					done <- nil
				}()
			}
			for i := range b.N {
				next <- i
			}
			close(next)
			for range 4 {
				if err := <-done; err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkRecover reads records of entries without reading a payload.
func BenchmarkRecover(b *testing.B) {
	const n = 100_000
	o := testOptions(b.TempDir())
	o.Database = nil // a process, as the daemon's
	o.CapacityBytes, o.MetaReserveBytes, o.SegmentBytes = 1<<40, 256*mib, 1<<30
	d, stop := start(b, o, nil)
	write(b, d, func(to *metadata.Batch) { writeMany(to, n) })
	if err := d.segments.grow(d.volumes[0], n*extentBytes(4096), func(int64) int64 { return 1 << 30 }); err != nil {
		b.Fatal(err)
	}
	stop()
	for b.Loop() {
		d, stop := start(b, o, nil)
		got := 0
		if err := d.Recover(context.Background(), func(rs []tier.Record) { got += len(rs) }); err != nil || got != n {
			b.Fatalf("recovered %d: %v", got, err)
		}
		stop()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/entry")
}

// writeMany writes the records of a chain of n small entries.
func writeMany(to *metadata.Batch, n int) {
	for i := range n {
		e := database.Entry{Key: keyOf(i), Size: 4096, Seq: 1, Depth: uint32(i), Extent: database.Extent{Segment: 1, Offset: int64(i) * extentBytes(4096), Bytes: uint32(extentBytes(4096))}}
		if i > 0 {
			e.Parent = keyOf(i - 1).Hash
		}
		k := database.EntryKey(e.Key)
		to.Set(k[:], database.AppendEntry(nil, &e))
	}
}
