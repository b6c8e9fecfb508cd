package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/kvstored/kvstored/internal/measure"
)

// The users of the client and of its attackers: any two but root.
const (
	clientUID   = 54321
	attackerUID = 54322
)

// options are the flags.
type options struct {
	rounds int
	span   time.Duration // of one measurement
	binary string
	only   string
	same   bool
	idle   bool // the kernel runs attackers where nothing else wants to run
}

func main() {
	if job := os.Getenv(jobVar); job != "" {
		exit(work(job))
	}
	var o options
	flag.IntVar(&o.rounds, "rounds", 5, "how often everything is measured")
	flag.DurationVar(&o.span, "span", 2*time.Second, "how long one measurement takes")
	flag.StringVar(&o.binary, "kvstored", "", "daemon to measure; empty builds this tree's")
	flag.StringVar(&o.only, "only", "", "attacks to run, comma-separated; empty runs all")
	flag.BoolVar(&o.same, "same", false, "the attackers are of the client's user")
	flag.BoolVar(&o.idle, "idle", false, "the kernel runs the attackers only where nothing else wants a processor (chrt --idle), as if the machine had enough of them")
	flag.Parse()
	exit(run(context.Background(), o))
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "rude:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// row is one attack and what the client saw, by round.
type row struct {
	attack        attack
	alone, beside []seen
}

func run(ctx context.Context, o options) error {
	if os.Getuid() != 0 && !o.same {
		return errors.New("the attackers are of another user than the client, which takes root; run as root, or with -same")
	}
	dir, err := os.MkdirTemp("", "kvstored-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil { // the sockets are everybody's
		return err
	}
	if o.binary, err = measure.Program(ctx, o.binary, dir); err != nil {
		return err
	}
	var rows []*row
	for _, a := range attacks {
		if o.only == "" || slices.Contains(strings.Split(o.only, ","), a.name) {
			rows = append(rows, &row{attack: a})
		}
	}
	d, err := startDaemon(ctx, o.binary, dir)
	if err != nil {
		return err
	}
	defer d.close()
	for i := range o.rounds {
		for _, r := range rows {
			if err := d.measure(ctx, r, &o); err != nil {
				return fmt.Errorf("%s: %w", r.attack.name, err)
			}
		}
		fmt.Fprintf(os.Stderr, "round %d of %d\n", i+1, o.rounds)
	}
	print(rows)
	return nil
}

// measure times the client alone, and then beside the attack.
func (d *daemon) measure(ctx context.Context, r *row, o *options) error {
	alone, err := d.client(ctx, o)
	if err != nil {
		return err
	}
	end, err := d.start(ctx, r.attack, o)
	if err != nil {
		return err
	}
	beside, err := d.client(ctx, o)
	end()
	if err != nil {
		return err
	}
	r.alone, r.beside = append(r.alone, alone), append(r.beside, beside)
	return nil
}

func print(rows []*row) {
	p50, p99 := func(s seen) float64 { return s.P50 }, func(s seen) float64 { return s.P99 }
	bare, toBare := func(s seen) float64 { return s.Bare }, func(s seen) float64 { return s.P99 / s.Bare }
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "attack\talone p50 us\tp99\tbare p99\tbeside p50 us\tp99\tbare p99\tp99 ratio\tmin\tmax\tbare's ratio\tp99 to bare p99\tcalls\tunanswered\t")
	for _, r := range rows {
		all := ratios(r, p99)
		calls, failed := 0, 0
		for _, s := range r.beside {
			calls, failed = calls+s.Calls, failed+s.Failed
		}
		fmt.Fprintf(w, "%s\t%.0f\t%.0f\t%.0f\t%.0f\t%.0f\t%.0f\t%.2f\t%.2f\t%.2f\t%.2f\t%.2f\t%d\t%d\t\n", r.attack.name,
			medianOf(r.alone, p50), medianOf(r.alone, p99), medianOf(r.alone, bare),
			medianOf(r.beside, p50), medianOf(r.beside, p99), medianOf(r.beside, bare),
			median(all), slices.Min(all), slices.Max(all), median(ratios(r, bare)), medianOf(r.beside, toBare), calls, failed)
	}
	_ = w.Flush() // to standard output
}

// ratios are what an attack made of a number, by round.
func ratios(r *row, of func(seen) float64) []float64 {
	out := make([]float64, len(r.alone))
	for i := range out {
		out[i] = of(r.beside[i]) / max(of(r.alone[i]), math.SmallestNonzeroFloat64)
	}
	return out
}

func medianOf(all []seen, of func(seen) float64) float64 {
	out := make([]float64, len(all))
	for i := range out {
		out[i] = of(all[i])
	}
	return median(out)
}

func median(xs []float64) float64 {
	s := slices.Clone(xs)
	slices.Sort(s)
	return s[len(s)/2]
}
