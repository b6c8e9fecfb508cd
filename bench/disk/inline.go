package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"text/tabwriter"

	"github.com/kvstored/kvstored/bench/measure"
)

// usualInline is the largest payload that a daemon puts into the database.
const usualInline = 2 << 10

// smallSizes are payloads about that size.
var smallSizes = []int{1 << 10, 2 << 10, 3 << 10, 4 << 10}

// smallPayloads is how many a turn stores and reads.
const smallPayloads = 8192

// small is payloads of one size in the database, or in segments.
type small struct {
	size   int
	inline int64
}

// runInline compares payloads in the database with the same in segments, each turn in a tier
// of its own.
func runInline(ctx context.Context, parent string, rounds int) error {
	var all []small
	for _, size := range smallSizes {
		all = append(all, small{size, int64(size)}, small{size, 0})
	}
	puts, gets, written := map[small][]float64{}, map[small][]float64{}, map[small]float64{}
	for range rounds {
		for _, i := range rand.Perm(len(all)) {
			put, get, wrote, err := all[i].measure(ctx, parent)
			if err != nil {
				return err
			}
			puts[all[i]], gets[all[i]], written[all[i]] = append(puts[all[i]], put), append(gets[all[i]], get), wrote
		}
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "payload\tin\tputs/s\tspread\tgets/s\tspread\twritten\t")
	for _, s := range all {
		in := "segments"
		if s.inline > 0 {
			in = "database"
		}
		p, g := puts[s], gets[s]
		fmt.Fprintf(w, "%d\t%s\t%.0f\t%.0f-%.0f\t%.0f\t%.0f-%.0f\tx%.1f\t\n", s.size, in,
			measure.Median(p), slices.Min(p), slices.Max(p), measure.Median(g), slices.Min(g), slices.Max(g), written[s])
	}
	return w.Flush()
}

// measure is a turn: puts and gets a second, and what was written of the payload.
func (m small) measure(ctx context.Context, parent string) (puts, gets, written float64, err error) {
	dir, err := os.MkdirTemp(parent, "kvstored-bench-")
	if err != nil {
		return 0, 0, 0, err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // whoever runs this can see what is left
	bytes := int64(smallPayloads * m.size)
	s, err := openSubject(filepath.Join(dir, "tier"), bytes, 4<<30, 0, m.inline)
	if err != nil {
		return 0, 0, 0, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	ks, took, err := s.store(ctx, m.size)
	if err != nil {
		return 0, 0, 0, err
	}
	s.have[m.size] = ks
	rate, err := s.get(ctx, m.size)
	c := s.Stats().Counters
	return smallPayloads / took.Seconds(), rate / float64(m.size), float64(c["extent_bytes_written"]+c["database_write_bytes"]) / float64(bytes), err
}
