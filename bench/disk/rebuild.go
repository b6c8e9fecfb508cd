package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"text/tabwriter"
	"time"
	"unsafe"

	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"

	"github.com/kvstored/kvstored/bench/measure"
	"github.com/kvstored/kvstored/disk"
	"github.com/kvstored/kvstored/tier"
)

const (
	readPiece  = 1 << 20 // of the sequential read, which has readers of them under way
	directPage = 4096
)

// rebuilds measures how fast the index of a tier is made anew against how fast
// its files are read from end to end, both with direct I/O.
type rebuilds struct {
	dir string
	o   disk.Options
}

// runRebuilds prints medians over the rounds, each of which takes all
// measurements once, in random order.
func runRebuilds(ctx context.Context, parent string, rounds int, bytes int64, pause time.Duration) error {
	dir, err := os.MkdirTemp(parent, "kvstored-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // whoever runs this can see what is left
	capacity := bytes*int64(len(sizes)+1) + 1<<30
	s, err := openSubject(dir, bytes, capacity, 0, usualInline)
	if err != nil {
		return err
	}
	if err := errors.Join(s.fill(ctx), s.Sync(ctx), s.close()); err != nil {
		return err
	}
	r := &rebuilds{dir, disk.Options{
		Paths: []string{dir}, CapacityBytes: capacity, SegmentBytes: min(1<<30, capacity/4), Policy: "lru", InlineMax: usualInline, Log: zerolog.Nop(),
	}}
	all := []*measurement{
		{name: "sequential read", run: func() (float64, error) { return r.sequential(ctx) }},
		{name: "without the database", run: func() (float64, error) { return r.lost(ctx) }},
		{name: "by order", run: func() (float64, error) { return r.ordered(ctx) }},
	}
	for range rounds {
		for _, i := range rand.Perm(len(all)) {
			time.Sleep(pause)
			v, err := all[i].run()
			if err != nil {
				return fmt.Errorf("%s: %w", all[i].name, err)
			}
			all[i].times = append(all[i].times, v)
		}
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\tMB/s\tspread\tratio\t")
	floor := measure.Median(all[0].times)
	for _, m := range all {
		v := measure.Median(m.times)
		fmt.Fprintf(w, "%s\t%.0f\t%.0f-%.0f\t%.2f\t\n", m.name, v/1e6, slices.Min(m.times)/1e6, slices.Max(m.times)/1e6, v/floor)
	}
	return w.Flush()
}

// sequential reads all segment files.
func (r *rebuilds) sequential(ctx context.Context) (float64, error) {
	names, err := filepath.Glob(filepath.Join(r.dir, "seg-*"))
	if err != nil {
		return 0, err
	}
	var total int64
	begun := time.Now()
	for _, name := range names {
		n, err := readDirect(ctx, name)
		if err != nil {
			return 0, err
		}
		total += n
	}
	return float64(total) / time.Since(begun).Seconds(), nil
}

func readDirect(ctx context.Context, path string) (int64, error) {
	f, err := openDirect(path)
	if err != nil {
		return 0, err
	}
	defer f.Close() //nolint:errcheck // nothing was written
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	g, ctx := errgroup.WithContext(ctx)
	next := make(chan int64)
	for range readers {
		g.Go(func() error {
			b := make([]byte, readPiece+directPage)
			from := -int(uintptr(unsafe.Pointer(&b[0]))) & (directPage - 1)
			for off := range next {
				if _, err := f.ReadAt(b[from:from+readPiece], off); err != nil && err != io.EOF {
					return err
				}
			}
			return nil
		})
	}
	for off := int64(0); off < info.Size() && ctx.Err() == nil; off += readPiece {
		select {
		case next <- off:
		case <-ctx.Done():
		}
	}
	close(next)
	return info.Size(), g.Wait()
}

// lost opens the tier when its database is gone.
func (r *rebuilds) lost(ctx context.Context) (float64, error) {
	if err := os.WriteFile(filepath.Join(r.dir, "badger", "MANIFEST"), []byte("none"), 0o600); err != nil {
		return 0, err
	}
	return r.open(ctx)
}

// ordered opens the tier with the order to compare all headers with the database.
func (r *rebuilds) ordered(ctx context.Context) (float64, error) {
	if err := os.WriteFile(filepath.Join(r.dir, "kvstored.rebuild"), nil, 0o600); err != nil {
		return 0, err
	}
	return r.open(ctx)
}

// open returns the rate of the rebuild that an opening makes.
func (r *rebuilds) open(ctx context.Context) (float64, error) {
	k, err := disk.Open(r.o)
	if err != nil {
		return 0, err
	}
	ran := make(chan error, 1)
	go func() { ran <- k.Run(ctx) }()
	begun := time.Now()
	err = k.Recover(ctx, func([]tier.Record) {})
	took, n := time.Since(begun), k.Stats().Counters["rebuild_bytes"]
	if err = errors.Join(err, k.Close(), <-ran); err == nil && n == 0 {
		err = errors.New("nothing was made anew")
	}
	return float64(n) / took.Seconds(), err
}
