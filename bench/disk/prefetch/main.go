package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/rs/zerolog"

	"github.com/kvstored/kvstored/bench/measure"
	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/disk"
	"github.com/kvstored/kvstored/internal/database"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

const (
	mib = 1 << 20

	diskChunk = mib
	farChunk  = 64 << 10

	window     = 64 * mib // in flight for one job
	farLatency = 30 * time.Millisecond
	farLoads   = 32 // at a time, as remote.s3.concurrency has it
	farChunks  = 2048
	share      = 1000 // chunks that each client of the fairness test wants
)

func main() {
	database.Main()
	dir := flag.String("dir", os.TempDir(), "folder on the disk to measure; files of its own are made in it and removed")
	rounds := flag.Int("rounds", 5, "how often everything is timed")
	chunks := flag.Int("mib", 256, "chunks of 1 MiB in the prompt that comes from disk")
	pause := flag.Duration("pause", 200*time.Millisecond, "between measurements")
	flag.Parse()
	if err := run(context.Background(), *dir, *rounds, *chunks, *pause); err != nil {
		fmt.Fprintln(os.Stderr, "prefetch:", err)
		os.Exit(1)
	}
}

// bench is the store that is measured.
type bench struct {
	files      *disk.Tier
	disk, far  *served
	diskClient *client.Client
	farClient  *client.Client
	long       *key.Chain // on disk
	short      *key.Chain // one chunk, on disk
	farChain   *key.Chain
	crowd      []member

	diskRate, tierRate, sleepRate, pushMedian, bareMedian, bareMost []float64
}

// member is one client of the fairness test.
type member struct {
	client *client.Client
	chains []*key.Chain
}

// row is one measurement: its name, and its goal.
type row struct {
	name    string
	run     func(context.Context) (float64, error)
	goal    float64
	atMost  bool
	results []float64
}

func run(ctx context.Context, parent string, rounds, chunks int, pause time.Duration) (err error) {
	dir, err := os.MkdirTemp(parent, "kvs-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // whoever runs this can see what is left
	b := new(bench)
	stop, err := b.open(ctx, dir, chunks)
	defer func() { err = errors.Join(err, stop()) }()
	if err != nil {
		return err
	}
	rows := []*row{
		{name: "from disk, of the tier's own rate", run: b.fromDisk, goal: 0.9},
		{name: "from 30 ms away, of loads x size / time", run: b.fromFar, goal: 0.9},
		{name: "usable and window, of 0.9 x what came", run: b.usable, goal: 1},
		{name: "push, p99 in ms", run: b.push, goal: 1, atMost: true},
		{name: "Jain's index, clients with 1, 5, 50 jobs", run: b.fairness, goal: 0.95},
	}
	for range rounds {
		for _, i := range rand.Perm(len(rows)) {
			time.Sleep(pause)
			v, err := rows[i].run(ctx)
			if err != nil {
				return fmt.Errorf("%s: %w", rows[i].name, err)
			}
			rows[i].results = append(rows[i].results, v)
		}
	}
	b.print(rows)
	return nil
}

func (b *bench) print(rows []*row) {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\tmedian\tspread\tgoal\t")
	for _, r := range rows {
		m, verdict, sign := measure.Median(r.results), "missed", ">="
		if r.atMost {
			sign = "<="
		}
		if m >= r.goal != r.atMost || m == r.goal {
			verdict = "reached"
		}
		fmt.Fprintf(w, "%s\t%.3f\t%.3f-%.3f\t%s %v\t%s\n", r.name, m, slices.Min(r.results), slices.Max(r.results), sign, r.goal, verdict)
	}
	_ = w.Flush()
	fmt.Printf("\nfrom disk %.0f MB/s, the tier alone %.0f MB/s\n", measure.Median(b.diskRate)/1e6, measure.Median(b.tierRate)/1e6)
	fmt.Printf("push p50 %.3f ms; a byte over a bare socket p50 %.3f, p99 %.3f (%.3f-%.3f) ms\n",
		measure.Median(b.pushMedian), measure.Median(b.bareMedian), measure.Median(b.bareMost), slices.Min(b.bareMost), slices.Max(b.bareMost))
	fmt.Printf("from 30 ms away, of what goroutines get that only wait: %.3f\n", measure.Median(b.sleepRate))
}

// open makes everything. stop takes down all that was made, also beside an error.
func (b *bench) open(ctx context.Context, dir string, chunks int) (stop func() error, err error) {
	var ends []func() error
	stop = func() (err error) {
		for _, end := range slices.Backward(ends) {
			err = errors.Join(err, end())
		}
		return err
	}
	b.files, err = disk.Open(disk.Options{
		Paths: []string{filepath.Join(dir, "tier")}, CapacityBytes: int64(chunks+64)*diskChunk + 1<<30, Policy: "lru", InlineMax: 2 << 10, Log: zerolog.Nop(),
	})
	if err != nil {
		return stop, err
	}
	diskCtx, stopDisk := context.WithCancel(ctx)
	ran := make(chan error, 1)
	go func() { ran <- b.files.Run(diskCtx) }()
	ends = append(ends, func() error {
		err := b.files.Close()
		stopDisk()
		_ = <-ran
		return err
	})
	if b.disk, err = open(dir, b.files, tier.Disk, tier.Limit{}, window); err != nil {
		return stop, err
	}
	ends = append(ends, b.disk.close)
	if b.far, err = open(dir, &far{latency: farLatency, entries: make(map[key.Key][]byte)}, tier.Remote, tier.Limit{Loads: farLoads}, window); err != nil {
		return stop, err
	}
	ends = append(ends, b.far.close)
	connect := func(s *served) (c *client.Client) {
		if err == nil {
			if c, err = s.dial(ctx); err == nil {
				ends = append(ends, c.Close)
			}
		}
		return c
	}
	chain := func(s *served, n, size int) (c *key.Chain) {
		if err == nil {
			c, err = s.chain(ctx, n, size)
		}
		return c
	}
	b.diskClient, b.farClient = connect(b.disk), connect(b.far)
	b.long, b.short = chain(b.disk, chunks, diskChunk), chain(b.disk, 1, diskChunk)
	b.farChain = chain(b.far, farChunks, farChunk)
	for _, jobs := range []int{1, 5, 50} {
		m := member{client: connect(b.far)}
		for j, left := 0, share; j < jobs; j++ { // each longer than the one before, all together a share
			n := 2 * share * (j + 1) / (jobs * (jobs + 1))
			if j == jobs-1 {
				n = left
			}
			left -= n
			m.chains = append(m.chains, chain(b.far, n, farChunk))
		}
		b.crowd = append(b.crowd, m)
	}
	return stop, err
}
