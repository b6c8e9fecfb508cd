package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/kvstored/kvstored/internal/measure"
)

type options struct {
	rounds    int
	span      time.Duration
	estimates bool
	binary    string
	disk      string
	profile   string
}

func main() {
	var o options
	flag.IntVar(&o.rounds, "rounds", 15, "how often each daemon has its turns")
	flag.DurationVar(&o.span, "span", 500*time.Millisecond, "how long a turn takes")
	flag.BoolVar(&o.estimates, "estimates", false, "the daemons differ in their estimates only, and nobody watches")
	flag.StringVar(&o.binary, "kvstored", "", "daemon to measure; empty builds this tree's")
	flag.StringVar(&o.disk, "dir", "", "folder for the disks of the daemons; empty is a temporary one")
	flag.StringVar(&o.profile, "profile", "", "file for a processor profile of the watched daemon")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, &o)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "watch:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o *options) error {
	if o.rounds < 2 || o.span < 100*time.Millisecond {
		return errors.New("-rounds must be 2 or more, -span 100ms")
	}
	dir, err := os.MkdirTemp(o.disk, "kvstored-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if o.binary, err = measure.Program(ctx, o.binary, dir); err != nil {
		return err
	}
	var pair [2]*daemon // alone, watched
	for i, watched := range []bool{false, true} {
		if pair[i], err = startDaemon(ctx, o, dir, watched); err != nil {
			return fmt.Errorf("daemon %d: %w", i+1, err)
		}
		defer pair[i].close()
	}
	profile := pair[1].profiled(o)
	results, err := turns(ctx, &pair, o)
	if err != nil {
		return err
	}
	report(results, o)
	if err := pair[1].printShare(busyOf(results) * time.Duration(o.rounds+1) / time.Duration(o.rounds)); err != nil {
		return err
	}
	return profile()
}

// turns has each daemon take its turns, round by round.
func turns(ctx context.Context, pair *[2]*daemon, o *options) (map[string][2][]result, error) {
	results := make(map[string][2][]result)
	for round := range o.rounds + 1 {
		for _, w := range works {
			for n := range pair {
				i := (n + round) % len(pair)
				pair[i].turns.Unlock()
				r, err := pair[i].turn(ctx, w.do, o.span)
				pair[i].turns.Lock()
				if err != nil {
					return nil, fmt.Errorf("daemon %d, %s: %w", i+1, w.name, err)
				}
				if list := results[w.name]; round > 0 { // the first warms up
					list[i] = append(list[i], r)
					results[w.name] = list
				}
			}
		}
	}
	return results, nil
}

// busyOf is the processor time of the watched daemon.
func busyOf(results map[string][2][]result) (busy time.Duration) {
	for _, list := range results {
		for _, r := range list[1] {
			busy += r.busy
		}
	}
	return busy
}

// result is one turn.
type result struct {
	n    int
	took time.Duration
	busy time.Duration // of the daemon
}

func report(results map[string][2][]result, o *options) {
	fmt.Printf("%d rounds of %v\n\n%-24s%12s%12s%16s%14s%14s%16s\n", o.rounds, o.span, "", "alone, /s", "watched, /s", "ratio", "us of daemon", "watched", "ratio")
	for _, w := range works {
		list := results[w.name]
		rate, rateError := compare(list, func(r result) (float64, float64) { return float64(r.n), r.took.Seconds() })
		busy, busyError := compare(list, func(r result) (float64, float64) { return float64(r.busy.Nanoseconds()) / 1e3, float64(r.n) })
		fmt.Printf("%-24s%12.0f%12.0f%9.3f ±%5.3f%14.2f%14.2f%9.3f ±%5.3f\n", w.name, rate[0], rate[1], rate[1]/rate[0], rateError, busy[0], busy[1], busy[1]/busy[0], busyError)
	}
}

// compare divides two sums over the turns of each daemon. The standard error is that of
// the ratio of the two quotients, from what it is without each round.
func compare(list [2][]result, of func(result) (part, whole float64)) (each [2]float64, standard float64) {
	quotients := func(without int) (q [2]float64) {
		for i := range list {
			parts, wholes := 0.0, 0.0
			for n, r := range list[i] {
				if part, whole := of(r); n != without {
					parts, wholes = parts+part, wholes+whole
				}
			}
			q[i] = parts / wholes
		}
		return q
	}
	sum, squares, n := 0.0, 0.0, float64(len(list[0]))
	for without := range list[0] {
		q := quotients(without)
		sum, squares = sum+q[1]/q[0], squares+q[1]/q[0]*q[1]/q[0]
	}
	return quotients(-1), math.Sqrt(max(0, squares-sum*sum/n) * (n - 1) / n)
}
