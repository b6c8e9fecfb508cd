package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"
)

type options struct {
	rounds, lookups int
	every           int // lookups for each store
	binary          string
}

func main() {
	var o options
	flag.IntVar(&o.rounds, "rounds", 100, "how often each daemon has its turn")
	flag.IntVar(&o.lookups, "lookups", 2400, "of a turn")
	flag.IntVar(&o.every, "every", 600, "lookups for each store of 24 chunks")
	flag.StringVar(&o.binary, "kvstored", "", "daemon to measure; empty builds this tree's")
	flag.Parse()
	if err := run(context.Background(), &o); err != nil {
		fmt.Fprintln(os.Stderr, "events:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o *options) error {
	if o.rounds < 10 || o.every < 1 || o.lookups < o.every {
		return errors.New("-rounds must be 10 or more, -every 1 or more, and -lookups no less than that")
	}
	dir, err := os.MkdirTemp("", "kvstored-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if o.binary == "" {
		o.binary = filepath.Join(dir, "kvstored")
		if out, err := exec.Command("go", "build", "-o", o.binary, "github.com/kvstored/kvstored/cmd/kvstored").CombinedOutput(); err != nil {
			return fmt.Errorf("build: %w\n%s", err, out)
		}
	}
	kinds := []string{off, counted, stream, zeromq}
	var all []*daemon
	for _, kind := range kinds {
		d, err := startDaemon(ctx, o.binary, dir, kind)
		if err != nil {
			return fmt.Errorf("daemon %s: %w", kind, err)
		}
		defer d.close()
		all = append(all, d)
	}
	results := make([][]time.Duration, len(all))
	for round := range o.rounds + 1 {
		for n := range all {
			i := (n + round) % len(all)
			r, err := all[i].turn(ctx, o)
			if err != nil {
				return fmt.Errorf("daemon %s: %w", kinds[i], err)
			}
			if round > 0 { // the first warms up
				results[i] = append(results[i], r)
			}
		}
	}
	report(kinds, all, results, o)
	return nil
}

func report(kinds []string, all []*daemon, results [][]time.Duration, o *options) {
	fmt.Printf("%d rounds of %d lookups; %d chunks stored after every %d\n\n%-10s%20s%24s%14s\n", o.rounds, o.lookups, chunks, o.every, "events", "daemon's us/lookup", "of off", "events heard")
	for i, list := range results {
		var each, ratios []float64
		for n, busy := range list {
			each = append(each, float64(busy.Nanoseconds())/1e3/float64(o.lookups))
			ratios = append(ratios, float64(busy)/float64(results[0][n]))
		}
		slices.Sort(each)
		slices.Sort(ratios)
		low, high := interval(len(ratios))
		fmt.Printf("%-10s%20.2f%9.3f [%.3f, %.3f]%14d\n", kinds[i], each[len(each)/2], ratios[len(ratios)/2], ratios[low], ratios[high], all[i].heard.Load())
	}
}

// interval is the places in a sorted sample between which the median of what it was
// taken from lies with a certainty of 95 %.
func interval(n int) (low, high int) {
	half := 1.96 * math.Sqrt(float64(n)) / 2
	return max(int(float64(n)/2-half), 0), min(int(float64(n)/2+half), n-1)
}
