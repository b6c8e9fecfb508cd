package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/kvstored/kvstored/internal/measure"
)

type options struct {
	starts, rounds, lookups int
	every                   int // lookups for each store
	binary                  string
	apart                   bool
	on                      func(start func() error) error // starts a daemon where it is to be
}

func main() {
	var o options
	flag.IntVar(&o.starts, "starts", 8, "how often all daemons are started")
	flag.IntVar(&o.rounds, "rounds", 25, "how often each daemon has its turn after a start")
	flag.IntVar(&o.lookups, "lookups", 2400, "of a turn")
	flag.IntVar(&o.every, "every", 600, "lookups for each store of 24 chunks")
	flag.StringVar(&o.binary, "kvstored", "", "daemon to measure; empty builds this tree's")
	flag.BoolVar(&o.apart, "apart", true, "keep daemons and clients on processors of their own")
	flag.Parse()
	if err := run(context.Background(), &o); err != nil {
		fmt.Fprintln(os.Stderr, "events:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o *options) error {
	if o.starts < 1 || o.rounds < 10 || o.every < 1 || o.lookups < o.every {
		return errors.New("-starts must be 1 or more, -rounds 10 or more, -every 1 or more, and -lookups no less than that")
	}
	dir, err := os.MkdirTemp("", "kvstored-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if o.binary, err = measure.Program(ctx, o.binary, dir); err != nil {
		return err
	}
	o.on = func(start func() error) error { return start() }
	if o.apart {
		if o.on, err = measure.Apart(); err != nil {
			return fmt.Errorf("-apart: %w", err)
		}
	}
	var total sample
	for start := range o.starts {
		if err := total.measure(ctx, o, filepath.Join(dir, fmt.Sprint(start))); err != nil {
			return err
		}
	}
	total.report(o)
	return nil
}

var kinds = [...]string{off, again, counted, stream, zeromq}

// sample is what was measured of each kind.
type sample struct {
	each, ratios, starts [len(kinds)][]float64 // microseconds a lookup; of each turn to off's, and the medians of starts
	heard                [len(kinds)]int64
}

// measure starts the daemons and has each take its turns.
func (s *sample) measure(ctx context.Context, o *options, dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	var all [len(kinds)]*daemon
	for i, kind := range kinds {
		d, err := startDaemon(ctx, o, dir, kind)
		if err != nil {
			return fmt.Errorf("daemon %s: %w", kind, err)
		}
		defer d.close()
		all[i] = d
	}
	var ratios [len(kinds)][]float64
	for round := range o.rounds + 1 {
		var busy [len(kinds)]time.Duration
		for n := range all {
			i := (n*(1+round%4) + round) % len(all) // five is prime: other neighbours each time
			var err error
			if busy[i], err = all[i].turn(ctx, o); err != nil {
				return fmt.Errorf("daemon %s: %w", kinds[i], err)
			}
		}
		for i := range all {
			if round > 0 { // the first warms up
				s.each[i] = append(s.each[i], float64(busy[i].Nanoseconds())/1e3/float64(o.lookups))
				ratios[i] = append(ratios[i], float64(busy[i])/float64(busy[0]))
			}
		}
	}
	for i, d := range all {
		s.ratios[i] = append(s.ratios[i], ratios[i]...)
		s.starts[i] = append(s.starts[i], measure.Median(ratios[i]))
		s.heard[i] += d.heard.Load()
	}
	return nil
}

func (s *sample) report(o *options) {
	fmt.Printf("%d starts, %d rounds of %d lookups; %d chunks stored after every %d\n\n%-10s%20s%24s%16s%14s\n",
		o.starts, o.rounds, o.lookups, chunks, o.every, "events", "daemon's us/lookup", "of off", "of starts", "events heard")
	for i, ratios := range s.ratios {
		slices.Sort(ratios)
		low, high := interval(len(ratios))
		fmt.Printf("%-10s%20.2f%9.3f [%.3f, %.3f]%8.3f, %.3f%14d\n", kinds[i], measure.Median(s.each[i]),
			ratios[len(ratios)/2], ratios[low], ratios[high], slices.Min(s.starts[i]), slices.Max(s.starts[i]), s.heard[i])
	}
}

// interval is the places in a sorted sample between which the median of what it was
// taken from lies with a certainty of 95 %.
func interval(n int) (low, high int) {
	half := 1.96 * math.Sqrt(float64(n)) / 2
	return max(int(float64(n)/2-half), 0), min(int(float64(n)/2+half), n-1)
}
