package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/kvstored/kvstored/bench/measure"
	"github.com/kvstored/kvstored/internal/database"
)

var sizes = []int{64 << 10, 256 << 10, 1 << 20, 4 << 20}

// churnSize is the size of the payloads that are put into a full tier.
const churnSize = 1 << 20

func main() {
	database.Main()
	dir := flag.String("dir", os.TempDir(), "folder on the disk to measure; files of its own are made in it and removed")
	rounds := flag.Int("rounds", 5, "how often everything is timed")
	mib := flag.Int64("mib", 384, "MiB moved by each measurement")
	pause := flag.Duration("pause", 200*time.Millisecond, "between measurements")
	only := flag.String("only", "", "measure the rows whose names this regular expression finds")
	depth := flag.Int("depth", 0, "pieces the tier has under way; 0 = its default")
	rebuild := flag.Bool("rebuild", false, "measure how fast the index is made anew, and nothing else")
	inline := flag.Bool("inline", false, "compare small payloads in the database with the same in segments, and nothing else")
	flag.Parse()
	rows, err := regexp.Compile(*only)
	switch {
	case err == nil && *rebuild:
		err = runRebuilds(context.Background(), *dir, *rounds, *mib<<20, *pause)
	case err == nil && *inline:
		err = runInline(context.Background(), *dir, *rounds)
	case err == nil:
		err = run(context.Background(), *dir, *rounds, *mib<<20, *pause, *depth, rows)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "disk:", err)
		os.Exit(1)
	}
}

// measurement is timed once a round; results are bytes a second, or a ratio.
type measurement struct {
	name  string
	run   func() (float64, error)
	times []float64
}

func run(ctx context.Context, parent string, rounds int, bytes int64, pause time.Duration, depth int, only *regexp.Regexp) (err error) {
	dir, err := os.MkdirTemp(parent, "kvstored-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // whoever runs this can see what is left
	s, err := openSubject(filepath.Join(dir, "tier"), bytes, bytes*int64(len(sizes)+2)+1<<30, depth, usualInline)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	if err := s.fill(ctx); err != nil {
		return err
	}
	prompt, err := openPrompt(ctx, s)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, prompt.close()) }()
	churn, err := openFull(ctx, dir, bytes, depth, churnSize)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, churn.close()) }()
	log, err := openValueLog(dir, bytes)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, log.close()) }()
	f := measure.NewFio(dir, bytes)
	if f.Installed() {
		if _, err := f.Run(ctx, "write", 1<<20, 4); err != nil { // so that reads find something
			return err
		}
	} else {
		fmt.Println("fio is not installed: no ratios")
	}
	t := newTable(ctx, s, f)
	t.addPrompt(ctx, prompt)
	t.addChurn(ctx, churn)
	t.addValueLog(ctx, log)
	all := t.keep(only)
	for range rounds {
		for _, i := range rand.Perm(len(all)) {
			time.Sleep(pause)
			m := all[i]
			v, err := m.run()
			if err != nil {
				return fmt.Errorf("%s: %w", m.name, err)
			}
			m.times = append(m.times, v)
		}
	}
	t.print(s, churn)
	return nil
}

// table is all rows, and which floors belong to which.
type table struct {
	rows []row
	late []float64 // first chunk of a prefix over one alone

	floors map[string][]*measurement // of fio by "read 64 KiB", by depth
	empty  *measurement              // churnSize into a tier with room
	churn  *measurement              // and without
}

type row struct {
	*measurement
	floors []*measurement // by depth
}

func newTable(ctx context.Context, s *subject, f *measure.Fio) *table {
	t := &table{floors: make(map[string][]*measurement)}
	for _, size := range sizes {
		for _, rw := range []string{"read", "write"} {
			of := fmt.Sprintf("%s %d KiB", rw, size>>10)
			for _, depth := range measure.FioDepths {
				if f.Installed() {
					m := &measurement{name: "fio " + of, run: func() (float64, error) { return f.Run(ctx, rw, size, depth) }}
					t.floors[of] = append(t.floors[of], m)
				}
			}
		}
		t.add(fmt.Sprintf("Get %d KiB", size>>10), fmt.Sprintf("read %d KiB", size>>10), func() (float64, error) { return s.get(ctx, size) })
		put := t.add(fmt.Sprintf("Put %d KiB", size>>10), fmt.Sprintf("write %d KiB", size>>10), func() (float64, error) { return s.put(ctx, size) })
		if size == churnSize {
			t.empty = put
		}
	}
	return t
}

// add makes a row, beside what fio gets for floor.
func (t *table) add(name, floor string, run func() (float64, error)) *measurement {
	m := &measurement{name: name, run: run}
	t.rows = append(t.rows, row{m, t.floors[floor]})
	return m
}

// keep drops the other rows, and returns the measurements that these need.
func (t *table) keep(only *regexp.Regexp) []*measurement {
	t.rows = slices.DeleteFunc(t.rows, func(r row) bool { return !only.MatchString(r.name) })
	var all []*measurement
	for _, r := range t.rows {
		for _, m := range append([]*measurement{r.measurement}, r.floors...) {
			if !slices.Contains(all, m) { // rows share floors
				all = append(all, m)
			}
		}
	}
	return all
}

func (t *table) addChurn(ctx context.Context, f *full) {
	of := fmt.Sprintf("%d KiB", churnSize>>10)
	t.churn = t.add("Put "+of+" when full", "write "+of, func() (float64, error) { return f.put(ctx) })
}

func (t *table) addPrompt(ctx context.Context, p *prompt) {
	of := fmt.Sprintf("%d KiB", promptChunk>>10)
	t.add(fmt.Sprintf("prefix of %d x %s", promptChunks, of), "read "+of, func() (float64, error) {
		rate, late, err := p.measure(ctx)
		t.late = append(t.late, late)
		return rate, err
	})
}

func (t *table) addValueLog(ctx context.Context, v *valueLog) {
	for _, size := range sizes {
		of := fmt.Sprintf("%d KiB", size>>10)
		t.add("Badger get "+of, "read "+of, func() (float64, error) { return v.get(ctx, size) })
		t.add("Badger put "+of, "write "+of, func() (float64, error) { return v.put(ctx, size) })
	}
}

func (t *table) print(s *subject, f *full) {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\tMB/s\tspread\tbest fio\tdepth\tratio")
	for _, r := range t.rows {
		m := measure.Median(r.times)
		fmt.Fprintf(w, "%s\t%.0f\t%.0f-%.0f\t", r.name, m/1e6, slices.Min(r.times)/1e6, slices.Max(r.times)/1e6)
		best, depth := 0.0, 0
		for i, f := range r.floors {
			if v := measure.Median(f.times); v > best {
				best, depth = v, measure.FioDepths[i]
			}
		}
		if best > 0 {
			fmt.Fprintf(w, "%.0f\t%d\t%.2f", best/1e6, depth, m/best)
		}
		fmt.Fprintln(w)
	}
	_ = w.Flush()
	fmt.Println()
	if len(t.churn.times) > 0 && len(t.empty.times) > 0 {
		fmt.Printf("full: %.2f of the rate with room, written x%.3f of the payload\n",
			measure.Median(t.churn.times)/measure.Median(t.empty.times), float64(f.written)/float64(f.payload))
	}
	c := s.Stats().Counters
	if len(t.late) > 0 {
		fmt.Printf("first chunk of the prefix: after %.1f times what one alone takes (%.1f-%.1f)\n", measure.Median(t.late), slices.Min(t.late), slices.Max(t.late))
	}
	fmt.Printf("written: x%.3f of the payload; direct I/O: %t\n",
		float64(writtenBytes(s.Stats()))/float64(s.Stats().PutBytes), c["direct_io"] == 1)
}
