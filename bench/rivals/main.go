package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/kvstored/kvstored/bench/measure"
	"github.com/kvstored/kvstored/config"
)

const (
	mostBytes = 128 << 20 // of one call
	mostSize  = 8 << 20   // of one value: what memcached takes is 16 MiB
)

// options are what the command line says.
type options struct {
	rounds int
	rivals []rival
	cells  []cell
	binary string
	json   string // a file
}

// cell is what a client does at a time: calls that put so many values, and then calls
// that get them.
type cell struct {
	Size  int `json:"size"` // of a value; 0 is empty round trips
	Count int `json:"count"`
	Calls int `json:"calls"`
}

// newCell bounds the bytes of a cell, so that no store has to evict, but has enough calls
// for a median.
func newCell(count, size int) cell {
	least := 4
	if count == 1 {
		least = 16
	}
	return cell{size, count, min(256, max(least, 32<<20/(count*size)))}
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM) // servers are not left behind
	o, err := parse(os.Args[1:])
	if err == nil {
		err = run(ctx, o)
	}
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "rivals:", err)
		os.Exit(1)
	}
}

// parse reads the command line. Its errors say what to write instead.
func parse(args []string) (*options, error) {
	o := &options{}
	flags := flag.NewFlagSet("rivals", flag.ContinueOnError)
	names := flags.String("rivals", "", "which to run beside kvstored, with commas between; empty runs all: "+strings.Join(rivalNames(), ", "))
	sizes := flags.String("sizes", "64KiB,256KiB,1MiB,4MiB,8MiB", "of single values; empty times none")
	batches := flags.String("batches", "16x64KiB,16x1MiB,16x4MiB,32x256KiB", "values of a call and their size; empty times none")
	flags.IntVar(&o.rounds, "rounds", 5, "how often everything is timed")
	flags.StringVar(&o.binary, "kvstored", "", "daemon to measure; empty builds this tree's")
	flags.StringVar(&o.json, "json", "", "file for the times of each round")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	switch {
	case flags.NArg() > 0:
		return nil, fmt.Errorf("%q is no option: -h lists them", flags.Arg(0))
	case o.rounds < 1:
		return nil, fmt.Errorf("-rounds: %d: use 1 or more", o.rounds)
	}
	var err, wrong error
	if o.rivals, err = readRivals(*names); err != nil {
		return nil, err
	}
	o.cells, err = readCells("-sizes", *sizes, nil)
	if o.cells, wrong = readCells("-batches", *batches, o.cells); err != nil || wrong != nil {
		return nil, errors.Join(err, wrong)
	}
	o.cells = append([]cell{{}}, o.cells...)
	return o, nil
}

// readRivals finds rivals by name. kvstored is always among them: the ratios are to it.
func readRivals(list string) (found []rival, err error) {
	if list == "" {
		return rivals, nil
	}
	wanted := strings.Split(list, ",")
	for _, name := range wanted {
		if !slices.Contains(rivalNames(), name) {
			return nil, fmt.Errorf("-rivals: %q is none of %s", name, strings.Join(rivalNames(), ", "))
		}
	}
	for _, r := range rivals {
		if r.name == ours || r.name == echo || slices.Contains(wanted, r.name) {
			found = append(found, r)
		}
	}
	return found, nil
}

// readCells adds those of a list, whose members are a size, or a count and a size.
func readCells(option, list string, cells []cell) ([]cell, error) {
	if list == "" {
		return cells, nil
	}
	for _, text := range strings.Split(list, ",") {
		count, size := 1, text
		if option == "-batches" {
			n, rest, _ := strings.Cut(text, "x")
			count, _ = strconv.Atoi(n) // 0 is refused
			size = rest
		}
		b, err := config.ParseBytes(size)
		if err != nil || b <= 0 || b > mostSize || b%4096 != 0 {
			return nil, fmt.Errorf("%s: %q: use sizes such as 64KiB or 16x64KiB, of whole pages of 4 KiB up to 8MiB", option, text)
		}
		if count < 1 || count == 1 && option == "-batches" || count*int(b) > mostBytes {
			return nil, fmt.Errorf("%s: %q: use batches of two values or more and at most 128MiB in all", option, text)
		}
		cells = append(cells, newCell(count, int(b)))
	}
	return cells, nil
}

func run(ctx context.Context, o *options) error {
	dir, err := os.MkdirTemp("", "kvstored-rivals-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if o.binary, err = measure.Program(ctx, o.binary, dir); err != nil {
		return err
	}
	p := place{dir: dir, binary: o.binary}
	if p.source, err = measure.Source(ctx, "rivals"); err != nil {
		return err
	}
	var names []string
	for _, r := range o.rivals {
		names = append(names, r.client)
	}
	installed, err := measure.Install(ctx, names...)
	if err != nil {
		return err
	}
	t := newTable(o)
	var running []*contender
	defer func() {
		for _, c := range running {
			c.processes.Stop()
		}
	}()
	for _, r := range o.rivals {
		c, err := r.start(ctx, p, installed)
		if err != nil {
			t.not(r.name, err)
			continue
		}
		running = append(running, c)
		t.run(c)
	}
	if err := play(ctx, o, t, running); err != nil && (ctx.Err() == nil || t.rounds == 0) {
		return err
	}
	t.cut()
	fmt.Print(t.text())
	if o.json != "" {
		return t.save(filepath.Clean(o.json))
	}
	return nil
}

// play times all cells. A rival that fails is not asked again, kvstored's failure and
// wrong bytes end the run; when it is interrupted, the rounds before count.
func play(ctx context.Context, o *options, t *table, running []*contender) error {
	for round := range o.rounds {
		fmt.Fprintf(os.Stderr, "rivals: round %d of %d\n", round+1, o.rounds)
		for at, cell := range o.cells {
			for i := range running {
				c := running[(i+at+round)%len(running)]
				if c.gone || cell.Size == 0 && !c.Pings || cell.Size > 0 && c.name == echo {
					continue
				}
				took, err := c.play(ctx, cell)
				if err != nil {
					if c.name == ours || ctx.Err() != nil || errors.Is(err, errOther) {
						return fmt.Errorf("%s: %w", c.name, err)
					}
					c.gone = true
					t.not(c.name, fmt.Errorf("from round %d on: %w", round+1, err))
					continue
				}
				t.add(c.name, cell, took)
			}
		}
		t.rounds++
	}
	return nil
}
