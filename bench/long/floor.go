package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sync/errgroup"
)

const (
	floorBlock = 1 << 20
	floorDepth = 8
	floorAlign = 4096
)

// floor streams a file beside the daemon's, past the page cache: what the disk
// does with nothing above it, at the time at which the daemon is measured.
type floor struct {
	file    *os.File
	bytes   int64
	buffers [floorDepth][]byte
}

func newFloor(dir string, mib int) (*floor, error) {
	path := filepath.Join(dir, "kvstored-bench-long")
	f, err := openDirect(path)
	if err != nil {
		return nil, fmt.Errorf("floor: %w", err)
	}
	if err := os.Remove(path); err != nil {
		return nil, fmt.Errorf("floor: %w", err)
	}
	fl := &floor{file: f, bytes: int64(mib) << 20}
	for i := range fl.buffers {
		fl.buffers[i] = aligned(floorBlock)
		rand.NewChaCha8([32]byte{byte(i)}).Read(fl.buffers[i]) // never fails
	}
	return fl, nil
}

// aligned is n bytes that direct I/O takes.
func aligned(n int) []byte {
	b := make([]byte, n+floorAlign)
	skip := -int(uintptr(unsafe.Pointer(&b[0]))) & (floorAlign - 1)
	return b[skip:][:n:n]
}

// stream goes through the file once and returns bytes a second.
func (f *floor) stream(ctx context.Context, do func(p []byte, off int64) (int, error)) (float64, error) {
	var next atomic.Int64
	start := time.Now()
	g, ctx := errgroup.WithContext(ctx)
	for _, buf := range f.buffers {
		g.Go(func() error {
			for ctx.Err() == nil {
				off := next.Add(floorBlock) - floorBlock
				if off >= f.bytes {
					return nil
				}
				if n, err := do(buf, off); n < len(buf) {
					return fmt.Errorf("floor: %d bytes at %d: %w", n, off, err)
				}
			}
			return ctx.Err()
		})
	}
	err := g.Wait()
	return float64(f.bytes) / time.Since(start).Seconds(), err
}

func (f *floor) write(ctx context.Context) (float64, error) { return f.stream(ctx, f.file.WriteAt) }
func (f *floor) read(ctx context.Context) (float64, error)  { return f.stream(ctx, f.file.ReadAt) }

// beside measures do between two measurements of the disk alone, and reports
// which share of that it reached.
func (f *floor) beside(ctx context.Context, what string, alone func(context.Context) (float64, error), do func() (float64, error)) error {
	before, err := alone(ctx)
	if err != nil {
		return err
	}
	rate, err := do()
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	after, err := alone(ctx)
	if err != nil {
		return err
	}
	disk := (before + after) / 2
	fmt.Printf("%-12s %6.0f MB/s; the disk alone %.0f before, %.0f after: ratio %.2f\n", what, rate/1e6, before/1e6, after/1e6, rate/disk)
	return nil
}
