package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/kvstored/kvstored/internal/measure"
)

func main() {
	clients := flag.Int("clients", 8, "that store at the same time")
	rounds := flag.Int("rounds", 6, "turns of each daemon")
	seconds := flag.Int("seconds", 4, "of a turn")
	pause := flag.Duration("pause", 20*time.Millisecond, "of a client behind each prompt; 0 = as much as the disk takes")
	dram := flag.Int("dram", 512, "MiB of DRAM")
	program := flag.String("kvstored", "", "daemon to measure; empty builds this tree's")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, *program, *dram, *clients, *rounds, time.Duration(*seconds)*time.Second, *pause)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "writes:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, program string, dramMiB, clients, rounds int, span, pause time.Duration) (err error) {
	if program == "" {
		dir, err := os.MkdirTemp("", "kvw-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		if program, err = measure.Program(ctx, "", dir); err != nil {
			return err
		}
	}
	kinds := []kind{
		{"through, lru", program, "through", "lru"},
		{"auto, lru", program, "auto", "lru"},
		{"auto, tenure", program, "auto", "tenure"},
	}
	var daemons []*daemon
	for _, k := range kinds {
		d, err := startDaemon(ctx, k, dramMiB, clients)
		if err != nil {
			return err
		}
		defer func() { _ = d.close() }()
		if err := d.fill(ctx); err != nil {
			return fmt.Errorf("%s: %w", d.name, err)
		}
		daemons = append(daemons, d)
	}
	for n := range rounds {
		for i := range daemons { // another one begins each time
			d := daemons[(n+i)%len(daemons)]
			if err := d.round(ctx, span, pause); err != nil {
				return fmt.Errorf("%s: %w", d.name, err)
			}
		}
	}
	return report(program, daemons)
}

func report(program string, daemons []*daemon) error {
	first := daemons[0]
	for _, d := range daemons {
		slices.Sort(d.took)
		if len(d.took) == 0 {
			return errors.New("nothing was stored")
		}
		written, err := d.written(program)
		if err != nil {
			return err
		}
		fmt.Printf("%-14s %6d prompts of %d x %d KiB: p50 %v, p99 %v, longest %v; of through: p50 %.2f, p99 %.2f; %s\n",
			d.name, len(d.took), chunks, chunkSize>>10, d.at(0.5), d.at(0.99), d.at(1),
			float64(d.at(0.5))/float64(first.at(0.5)), float64(d.at(0.99))/float64(first.at(0.99)), written)
	}
	return nil
}

// at is a quantile of what stores took.
func (d *daemon) at(q float64) time.Duration {
	return d.took[int(q*float64(len(d.took)-1))].Round(time.Microsecond)
}
