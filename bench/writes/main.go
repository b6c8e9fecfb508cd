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

func main() {
	clients := flag.Int("clients", 8, "that store at the same time")
	rounds := flag.Int("rounds", 6, "turns of each daemon")
	seconds := flag.Int("seconds", 4, "of a turn")
	program := flag.String("kvstored", "", "daemon to measure; empty builds this tree's")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *program, *clients, *rounds, time.Duration(*seconds)*time.Second); err != nil {
		fmt.Fprintln(os.Stderr, "writes:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, program string, clients, rounds int, span time.Duration) (err error) {
	dir, err := os.MkdirTemp("", "kvw-") // short: a socket's path is
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if program == "" {
		program = filepath.Join(dir, "kvstored")
		if out, err := exec.Command("go", "build", "-o", program, "github.com/kvstored/kvstored/cmd/kvstored").CombinedOutput(); err != nil {
			return fmt.Errorf("build: %w\n%s", err, out)
		}
	}
	var daemons []*daemon
	for _, of := range [][2]string{{"through", "lru"}, {"auto", "tenure"}} {
		d, err := startDaemon(ctx, program, dir, of[0], of[1], clients)
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
		for i := range daemons { // who begins changes
			if err := daemons[(n+i)%2].round(ctx, span); err != nil {
				return fmt.Errorf("%s: %w", daemons[(n+i)%2].name, err)
			}
		}
	}
	return report(daemons[0], daemons[1])
}

func report(through, auto *daemon) error {
	for _, d := range []*daemon{through, auto} {
		slices.Sort(d.took)
		if len(d.took) == 0 {
			return errors.New("nothing was stored")
		}
		fmt.Printf("%-14s %6d prompts of %d x %d KiB: p50 %v, p99 %v, longest %v\n", d.name, len(d.took), chunks, chunkSize>>10, d.at(0.5), d.at(0.99), d.at(1))
	}
	fmt.Printf("auto / through: p50 %.2f, p99 %.2f\n", float64(auto.at(0.5))/float64(through.at(0.5)), float64(auto.at(0.99))/float64(through.at(0.99)))
	return nil
}

// at is a quantile of what stores took.
func (d *daemon) at(q float64) time.Duration {
	return d.took[int(q*float64(len(d.took)-1))].Round(time.Microsecond)
}
