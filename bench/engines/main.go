package main

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kvstored/kvstored/bench/measure"
)

var sizes = []int{256 << 10, 1 << 20, 4 << 20, 8 << 20}

const (
	keys  = 16        // that values are stored under in turn
	batch = 256 << 20 // bytes of one timing, about
)

func main() {
	rounds := flag.Int("rounds", 7, "how often everything is timed")
	binary := flag.String("kvstored", "", "daemon to measure; empty builds this tree's")
	clients := flag.Int("clients", 1, "connections that store and read at a time; of several, a time is that of the whole divided by the values")
	asks := flag.Bool("names", false, "commands of many names instead")
	loop := flag.Bool("event-loop", false, "clients wait in Go's event loop; else each blocks a thread of its own, as redis-py and hiredis do")
	flag.Parse()
	if err := run(*rounds, max(1, *clients), *loop, *binary, *asks); err != nil {
		fmt.Fprintln(os.Stderr, "engines:", err)
		os.Exit(1)
	}
}

// contender is one server under test.
type contender struct {
	name    string
	clients []*client
}

// row is one line of the table: seconds of a value, by contender.
type row struct {
	what  string
	bytes int
	took  [2][]float64
}

func run(rounds, clients int, loop bool, binary string, asks bool) error {
	dir, err := os.MkdirTemp("", "kvstored-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	servers, stop, err := start(dir, binary, clients, loop)
	defer stop()
	if err != nil {
		return err
	}
	if asks {
		return many(servers, rounds)
	}
	var rows []*row
	for _, size := range sizes {
		put, get := &row{what: "put", bytes: size}, &row{what: "get", bytes: size}
		rows = append(rows, put, get)
		value := make([]byte, size)
		r := rand.NewChaCha8([32]byte{})
		_, _ = r.Read(value)
		for round := range rounds + 1 { // the first warms up
			for i := range servers {
				which := (i + round) % len(servers)
				p, g, err := servers[which].time(value)
				if err != nil {
					return fmt.Errorf("%s: %w", servers[which].name, err)
				}
				if round > 0 {
					put.took[which] = append(put.took[which], p...)
					get.took[which] = append(get.took[which], g...)
				}
			}
		}
	}
	print(rows)
	return nil
}

// time is how long values take to store, over old ones, and to read.
func (c *contender) time(value []byte) (put, get []float64, err error) {
	put, err = c.each(len(value), func(cl *client, name string, _ []byte) error { return cl.set(name, value) }, nil)
	if err != nil {
		return nil, nil, err
	}
	get, err = c.each(len(value), (*client).get, value)
	return put, get, err
}

// each calls f for every value, by all clients at a time. One client's times are
// those of each value; several share one time, the whole divided by the values.
// The bytes read last must be want, if there are any.
func (c *contender) each(size int, f func(cl *client, name string, into []byte) error, want []byte) ([]float64, error) {
	n := max(1, max(keys, batch/size)/len(c.clients))
	took := make([]float64, n)
	var g errgroup.Group
	begun := time.Now()
	for at, cl := range c.clients {
		g.Go(func() error {
			if _, ok := cl.out.(blocking); ok {
				runtime.LockOSThread()
				defer runtime.UnlockOSThread()
			}
			into := make([]byte, size)
			for i := range n {
				begun := time.Now()
				if err := f(cl, fmt.Sprintf("key:%d:%d:%d", size, at, i%max(1, keys/len(c.clients))), into); err != nil {
					return err
				}
				if at == 0 {
					took[i] = time.Since(begun).Seconds()
				}
			}
			if want != nil && !slices.Equal(into, want) {
				return fmt.Errorf("read something else than was stored")
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	if len(c.clients) > 1 {
		took = []float64{time.Since(begun).Seconds() / float64(n*len(c.clients))}
	}
	return took, nil
}

func print(rows []*row) {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, strings.Join([]string{"", "MiB", "redis us", "kvstored us", "redis GB/s", "kvstored GB/s", "times redis", ""}, "\t"))
	for _, r := range rows {
		redis, ours := measure.Median(r.took[0]), measure.Median(r.took[1])
		fmt.Fprintf(w, "%s\t%.2f\t%.0f\t%.0f\t%.2f\t%.2f\t%.2f\t\n", r.what, float64(r.bytes)/(1<<20), 1e6*redis, 1e6*ours,
			float64(r.bytes)/redis/1e9, float64(r.bytes)/ours/1e9, redis/ours)
	}
	_ = w.Flush()
}
