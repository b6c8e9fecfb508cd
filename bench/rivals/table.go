package main

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/kvstored/kvstored/bench/measure"
)

// table has the microseconds of a call, the median of each round.
type table struct {
	Date    string            `json:"date"`
	Load    string            `json:"load"` // of the machine in the minute before
	Clients map[string]string `json:"clients"`
	NotRun  map[string]string `json:"not_run"` // and why
	measure.Rounds
	rounds int // that are whole
}

func newTable(o *options) *table {
	load, _ := os.ReadFile("/proc/loadavg") // elsewhere it is not known
	first, _, _ := strings.Cut(string(load), " ")
	t := &table{Date: time.Now().UTC().Format("2006-01-02 15:04"), Load: first, Clients: make(map[string]string), NotRun: make(map[string]string)}
	for _, batches := range []bool{false, true} {
		for _, what := range []string{"ping", "get", "put"} {
			for _, c := range o.cells {
				if (c.Count > 1) == batches && (c.Size == 0) == (what == "ping") {
					t.Row(rowName(what, c))
				}
			}
		}
	}
	for _, r := range o.rivals {
		t.Contenders = append(t.Contenders, r.name)
	}
	return t
}

func rowName(what string, c cell) string {
	size := fmt.Sprintf("%d KiB", c.Size>>10)
	if c.Size%(1<<20) == 0 {
		size = fmt.Sprintf("%d MiB", c.Size>>20)
	}
	switch {
	case c.Size == 0:
		return what
	case c.Count == 1:
		return what + " " + size
	}
	return fmt.Sprintf("%s of %d x %s", what, c.Count, size)
}

// run and not say which rivals the table has, and why others are not in it.
func (t *table) run(c *contender) { t.Clients[c.name] = c.What }

func (t *table) not(name string, why error) { t.NotRun[name] = why.Error() }

// add takes a round's nanoseconds of each call.
func (t *table) add(name string, c cell, took map[string][]float64) {
	for what, each := range took {
		times := t.Row(rowName(what, c)).Times
		times[name] = append(times[name], measure.Median(each)/1000)
	}
}

// cut drops what is of a round that is not whole.
func (t *table) cut() {
	for _, r := range t.Rows {
		for name, times := range r.Times {
			r.Times[name] = times[:min(len(times), t.rounds)]
		}
	}
}

// fastest is the rival that takes the least of kvstored's time; none where no rival has a
// time.
func fastest(r *measure.Row) (name string, ratio float64) {
	for other := range r.Times {
		ratios := r.Ratios(ours, other)
		if other == ours || other == oursRedis || other == echo || len(ratios) == 0 {
			continue
		}
		if of := measure.Median(ratios); name == "" || of < ratio || of == ratio && other < name {
			name, ratio = other, of
		}
	}
	return name, ratio
}

// text is the table, with what has to be said of it.
func (t *table) text() string {
	return fmt.Sprintf("Microseconds a call, medians of %d rounds (%s UTC, load before %s).\n"+
		"kvstored: least and most of the rounds. Others: their time to kvstored's in the same round, median, least and most.\n\n", t.rounds, t.Date, t.Load) +
		t.Markdown() + "\n" + t.words()
}

// words say where kvstored is not first, which clients were run and which rivals were not.
func (t *table) words() string {
	var b strings.Builder
	var rows int
	var behind []string
	for _, r := range t.Rows {
		if name, ratio := fastest(r); name != "" {
			rows++
			if ratio < 1 {
				behind = append(behind, fmt.Sprintf("%s (%s %.2fx)", r.What, name, ratio))
			}
		}
	}
	fmt.Fprintf(&b, "kvstored is first in %d of %d rows", rows-len(behind), rows)
	if len(behind) > 0 {
		fmt.Fprintf(&b, "; behind in %s", strings.Join(behind, ", "))
	}
	b.WriteString(". An echo is 64 bytes between two Python processes.\n")
	for _, name := range slices.DeleteFunc(slices.Clone(t.Contenders), func(name string) bool { return name == echo }) {
		if what := t.Clients[name]; what != "" {
			fmt.Fprintf(&b, "Run: %s: %s.\n", name, what)
		}
		if why := t.NotRun[name]; why != "" {
			fmt.Fprintf(&b, "Not run: %s: %s.\n", name, strings.TrimSuffix(why, "."))
		}
	}
	return b.String()
}

// save writes all of it as JSON.
func (t *table) save(file string) error {
	text, err := json.MarshalIndent(t, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o644)
}
