package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"

	"github.com/kvstored/kvstored/policy"
)

func main() {
	quick := flag.Bool("quick", false, "some minutes instead of an hour: 1 million chunks instead of 10, and fewer victims")
	row := flag.String("row", "", "measure one row and nothing else: refused, tails, tree, map, the name of a policy, or puts- and a name")
	flag.Parse()
	n := amounts{chunks: 10_000_000, victims: 200_000}
	if *quick {
		n = amounts{chunks: 1_000_000, victims: 50_000}
	}
	do := func() error { return all(n, *quick) }
	if *row != "" {
		do = func() error { return one(*row, n) }
	}
	if err := do(); err != nil {
		fmt.Fprintln(os.Stderr, "evict:", err)
		os.Exit(1)
	}
}

// amounts are how much is measured.
type amounts struct{ chunks, victims int }

// one measures a row, or the few that are a table, in this process, and prints
// it.
func one(row string, n amounts) error {
	runtime.LockOSThread()
	switch row {
	case "refused":
		return evictions(n.victims)
	case "tails":
		return tails(n.victims)
	case "tree":
		return measureIndex(row, newTree, n.chunks)
	case "map":
		return measureIndex(row, newPlain, n.chunks)
	}
	if name, puts := strings.CutPrefix(row, putsRow); puts {
		return measurePuts(name, n.chunks)
	}
	return measureBooks(row, n.chunks)
}

// putsRow comes before the name of a policy, where its puts are meant.
const putsRow = "puts-"

func all(n amounts, quick bool) error {
	if err := rows([]string{"refused", "tails"}, quick); err != nil {
		return err
	}
	fmt.Printf("\nindex of %d chunks\n%s", n.chunks, indexHeader)
	if err := rows([]string{"tree", "map"}, quick); err != nil {
		return err
	}
	fmt.Printf("\nledger of %d chunks\n%s", n.chunks, booksHeader)
	if err := rows(policy.All(), quick); err != nil {
		return err
	}
	fmt.Printf("\nputs while such a ledger fills\n%s", putsHeader)
	var puts []string
	for _, name := range policy.All() {
		puts = append(puts, putsRow+name)
	}
	return rows(puts, quick)
}

// rows has each row measured by another process.
func rows(names []string, quick bool) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	for _, name := range names {
		cmd := exec.Command(self, "-row", name, "-quick="+strconv.FormatBool(quick))
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("measure %s: %w", name, err)
		}
	}
	return nil
}
