package main

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

var sizes = []int{256 << 10, 1 << 20, 4 << 20, 8 << 20}

const (
	keys  = 16        // that values are stored under in turn
	batch = 256 << 20 // bytes of one timing, about
)

func main() {
	rounds := flag.Int("rounds", 7, "how often everything is timed")
	binary := flag.String("kvstored", "", "daemon to measure; empty builds this tree's")
	flag.Parse()
	if err := run(*rounds, *binary); err != nil {
		fmt.Fprintln(os.Stderr, "engines:", err)
		os.Exit(1)
	}
}

// contender is one server under test.
type contender struct {
	name string
	*client
}

// row is one line of the table: the seconds of each value, by contender.
type row struct {
	what  string
	bytes int
	took  [2][]float64
}

func run(rounds int, binary string) error {
	dir, err := os.MkdirTemp("", "kvstored-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	servers, stop, err := start(dir, binary)
	defer stop()
	if err != nil {
		return err
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

// time is how long values take to store, over old ones, and to read, one by one.
func (c *client) time(value []byte) (put, get []float64, err error) {
	n := max(keys, batch/len(value))
	name := func(i int) string { return fmt.Sprintf("key:%d:%d", len(value), i%keys) }
	for i := range n {
		begun := time.Now()
		if err := c.set(name(i), value); err != nil {
			return nil, nil, err
		}
		put = append(put, time.Since(begun).Seconds())
	}
	into := make([]byte, len(value))
	for i := range n {
		begun := time.Now()
		if err := c.get(name(i), into); err != nil {
			return nil, nil, err
		}
		get = append(get, time.Since(begun).Seconds())
	}
	if !slices.Equal(into, value) {
		return nil, nil, fmt.Errorf("read something else than was stored")
	}
	return put, get, nil
}

func print(rows []*row) {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, strings.Join([]string{"", "MiB", "redis us", "kvstored us", "redis GB/s", "kvstored GB/s", "times redis", ""}, "\t"))
	for _, r := range rows {
		redis, ours := median(r.took[0]), median(r.took[1])
		fmt.Fprintf(w, "%s\t%.2f\t%.0f\t%.0f\t%.2f\t%.2f\t%.2f\t\n", r.what, float64(r.bytes)/(1<<20), 1e6*redis, 1e6*ours,
			float64(r.bytes)/redis/1e9, float64(r.bytes)/ours/1e9, redis/ours)
	}
	_ = w.Flush()
}

func median(v []float64) float64 {
	slices.Sort(v)
	return v[len(v)/2]
}
