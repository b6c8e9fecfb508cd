package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"
)

type options struct {
	rounds int
	span   time.Duration
	rate   int // chunks stored a second
	binary string
}

func main() {
	var o options
	flag.IntVar(&o.rounds, "rounds", 15, "how often each daemon has its turn")
	flag.DurationVar(&o.span, "span", time.Second, "how long a turn takes")
	flag.IntVar(&o.rate, "rate", 1000, "chunks that are stored a second")
	flag.StringVar(&o.binary, "kvstored", "", "daemon to measure; empty builds this tree's")
	flag.Parse()
	if err := run(context.Background(), &o); err != nil {
		fmt.Fprintln(os.Stderr, "events:", err)
		os.Exit(1)
	}
}

// result is one turn.
type result struct {
	lookups, stored int
	busy            time.Duration // of the daemon
}

func run(ctx context.Context, o *options) error {
	if o.rounds < 1 || o.span < 100*time.Millisecond || o.rate < 100 || o.rate > 100_000 {
		return errors.New("-rounds must be 1 or more, -span 100ms, -rate 100 to 100000")
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
	results := make([][]result, len(all))
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

func report(kinds []string, all []*daemon, results [][]result, o *options) {
	fmt.Printf("%d chunks stored a second, %d rounds of %v\n\n%-10s%14s%14s%20s%14s%14s\n", o.rate, o.rounds, o.span, "events", "lookups/s", "of off", "daemon's us/lookup", "of off", "events heard")
	for i, list := range results {
		var rate, busy, rates, costs []float64
		for n, r := range list {
			none := results[0][n]
			rate, busy = append(rate, float64(r.lookups)/o.span.Seconds()), append(busy, r.each())
			rates, costs = append(rates, float64(r.lookups)/float64(none.lookups)), append(costs, r.each()/none.each())
		}
		fmt.Printf("%-10s%14.0f%14.3f%20.2f%14.3f%14d\n", kinds[i], median(rate), median(rates), median(busy), median(costs), all[i].heard.Load())
	}
}

// each is the daemon's time for a lookup, in microseconds; stores are in it.
func (r result) each() float64 { return float64(r.busy.Nanoseconds()) / 1e3 / float64(r.lookups) }

func median(all []float64) float64 {
	s := slices.Sorted(slices.Values(all))
	return s[len(s)/2]
}
