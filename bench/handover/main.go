package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/kvstored/kvstored/internal/measure"
)

// row is what DRAM is filled with, and how often it is handed over.
type row struct{ chunks, bytes, rounds int }

// rows have the same bytes in more and more chunks, then as many chunks with fewer bytes.
var rows = []row{
	{1_000, 4 << 20, 30},
	{16_000, 256 << 10, 30},
	{100_000, 40_000, 10},
	{100_000, 4_000, 10},
	{1_000_000, 4_000, 5},
}

// capacity is room for the chunks, and for a seventh more.
func (r row) capacity() int64 {
	return int64(r.chunks) * int64((r.bytes+4095)&^4095) * 23 / 20
}

func main() {
	binary := flag.String("kvstored", "", "daemon to measure; empty builds this tree's")
	other := flag.String("other", "", "an older daemon, which takes turns with the first; empty for the first alone")
	only := flag.Int("row", -1, "number of the only row, from 0 on; negative for all")
	rounds := flag.Int("rounds", 0, "hand-overs in each row; 0 for as many as it says in the source")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM) // daemons of 5 GiB are not left behind
	err := run(ctx, *binary, *other, *only, *rounds)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "handover:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, binary, other string, only, rounds int) error {
	if only >= len(rows) {
		return fmt.Errorf("-row %d: there are %d, from 0 on", only, len(rows))
	}
	dir, err := os.MkdirTemp("", "kvstored-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if binary, err = measure.Program(ctx, binary, dir); err != nil {
		return err
	}
	programs := []string{binary}
	if other != "" {
		programs = append(programs, other)
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "chunks\tbytes each\tGiB\thand-overs\tgaps\tmedian\tp99\tlongest\tthe whole\t")
	for i, r := range rows {
		if only >= 0 && i != only {
			continue
		}
		if rounds > 0 {
			r.rounds = rounds
		}
		gaps, whole, err := handOver(ctx, dir, programs, r)
		if err != nil {
			return fmt.Errorf("%d chunks of %d bytes: %w", r.chunks, r.bytes, err)
		}
		fmt.Fprintf(w, "%d\t%d\t%.1f\t%d\t%d\t%v\t%v\t%v\t%v\t\n", r.chunks, r.bytes, float64(r.chunks)*float64(r.bytes)/(1<<30), r.rounds, len(gaps),
			rounded(gaps, .5), rounded(gaps, .99), rounded(gaps, 1), rounded(whole, .5))
	}
	return w.Flush()
}

func rounded(ds []time.Duration, share float64) time.Duration {
	return measure.Quantile(ds, share).Round(time.Millisecond)
}

// handOver hands one row over. It returns the gaps that clients saw, and how long each
// hand-over took from the start of the process to the end of the one before.
func handOver(ctx context.Context, dir string, programs []string, r row) (gaps, whole []time.Duration, err error) {
	d, err := startDaemon(ctx, programs[0], dir, r)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = d.Close() }()
	asking := newAsking(ctx, d.Socket)
	defer asking.stop()
	for i := range r.rounds {
		if err := asking.all(ctx); err != nil {
			return nil, nil, err
		}
		begun := time.Now()
		if d, err = d.Succeed(ctx, programs[(i+1)%len(programs)]); err != nil {
			return nil, nil, err
		}
		whole = append(whole, time.Since(begun))
		found, err := asking.gaps(ctx)
		if err != nil {
			return nil, nil, err
		}
		gaps = append(gaps, found...)
		if err := complete(ctx, d, r); err != nil {
			return nil, nil, fmt.Errorf("after hand-over %d: %w", i+1, err)
		}
	}
	return gaps, whole, nil
}
