package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"
)

type options struct {
	rounds  int
	span    time.Duration
	binary  string
	disk    string
	profile string
}

func main() {
	var o options
	flag.IntVar(&o.rounds, "rounds", 15, "how often each daemon has its turns")
	flag.DurationVar(&o.span, "span", 500*time.Millisecond, "how long a turn takes")
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
	if o.rounds < 1 || o.span < 100*time.Millisecond {
		return errors.New("-rounds must be 1 or more, -span 100ms")
	}
	dir, err := os.MkdirTemp(o.disk, "kvstored-bench-")
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
	var pair [2]*daemon // alone, watched
	for i, watched := range []bool{false, true} {
		if pair[i], err = startDaemon(ctx, o.binary, dir, watched); err != nil {
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
				r, err := pair[i].turn(ctx, w.do, o.span)
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
	busy time.Duration // of the daemon
}

// each is the daemon's time for one of the turn, in microseconds.
func (r result) each() float64 { return float64(r.busy.Nanoseconds()) / 1e3 / float64(r.n) }

func report(results map[string][2][]result, o *options) {
	fmt.Printf("%d rounds of %v\n\n%-28s%12s%12s%10s%14s%14s%10s\n", o.rounds, o.span, "", "alone, /s", "watched, /s", "ratio", "us of daemon", "watched", "ratio")
	for _, w := range works {
		var rates, busies [2][]float64
		var ofRates, ofBusies []float64
		list := results[w.name]
		for n := range list[0] {
			for i := range list {
				rates[i], busies[i] = append(rates[i], float64(list[i][n].n)/o.span.Seconds()), append(busies[i], list[i][n].each())
			}
			ofRates, ofBusies = append(ofRates, rates[1][n]/rates[0][n]), append(ofBusies, busies[1][n]/busies[0][n])
		}
		fmt.Printf("%-28s%12.0f%12.0f%10.3f%14.2f%14.2f%10.3f\n", w.name, median(rates[0]), median(rates[1]), median(ofRates), median(busies[0]), median(busies[1]), median(ofBusies))
	}
}

func median(all []float64) float64 {
	s := slices.Sorted(slices.Values(all))
	return s[len(s)/2]
}
