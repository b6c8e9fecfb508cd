package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/kvstored/kvstored/internal/measure"
)

func main() {
	if job := os.Getenv(childVar); job != "" {
		_ = child(context.Background(), job) // ends with its daemon, if it is not killed
		return
	}
	var o options
	flag.Int64Var(&o.ops, "ops", 0, "operations of the workers that end the run")
	flag.DurationVar(&o.span, "for", 0, "time that ends the run; 45s where neither is given")
	flag.Uint64Var(&o.seed, "seed", uint64(time.Now().UnixNano()), "of all that is random")
	flag.IntVar(&o.workers, "workers", 4, "clients that do something all the time")
	flag.StringVar(&o.binary, "kvstored", "", "daemon to check; empty builds this tree's")
	flag.Parse()
	if o.ops == 0 && o.span == 0 {
		o.span = 45 * time.Second
	}
	o.log = func(format string, args ...any) { fmt.Printf(format+"\n", args...) }
	if err := report(context.Background(), o); err != nil {
		fmt.Fprintln(os.Stderr, "consistency:", err)
		os.Exit(1)
	}
}

// report runs, and prints the result.
func report(ctx context.Context, o options) (err error) {
	if o.dir, err = os.MkdirTemp("", "kvstored-consistency-"); err != nil {
		return err
	}
	if o.binary, err = measure.Program(ctx, o.binary, o.dir); err != nil {
		return err
	}
	begun := time.Now()
	o.log("seed %d, in %s", o.seed, o.dir)
	r := newRun(o)
	broken, err := r.play(ctx)
	if err != nil {
		return err
	}
	o.log("%d operations in %v, %d lives of the daemon; %+v", r.ops.Load(), time.Since(begun).Round(time.Second), r.lives, r.history.counts())
	if len(broken) == 0 {
		o.log("0 violations")
		r.clean()
		return nil
	}
	for _, v := range broken[:min(len(broken), 20)] {
		o.log("%s: %s", v.promise, v.text)
	}
	return fmt.Errorf("%d violations; the daemon's folder stays in %s", len(broken), o.dir)
}
