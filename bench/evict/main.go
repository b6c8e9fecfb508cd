// Command evict measures what the counters of package policy cannot show: that
// a victim costs the same however many entries were refused, and what an index
// of many chunks costs in time, memory and garbage collection, next to a plain
// map with an entry for each chunk.
//
//	go run ./bench/evict            # 10 million chunks: about 4 GiB of memory
//	go run ./bench/evict -quick     # 1 million
//
// Each index is measured in a process of its own, so that memory is what the
// kernel counts for it.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strconv"
)

func main() {
	quick := flag.Bool("quick", false, "1 million chunks instead of 10, and fewer victims")
	index := flag.String("index", "", "measure one index, tree or map, and nothing else")
	flag.Parse()
	chunks, victims := 10_000_000, 200_000
	if *quick {
		chunks, victims = 1_000_000, 50_000
	}
	if err := run(*index, chunks, victims, *quick); err != nil {
		fmt.Fprintln(os.Stderr, "evict:", err)
		os.Exit(1)
	}
}

func run(index string, chunks, victims int, quick bool) error {
	switch index {
	case "tree":
		return measure("tree", newTree(), chunks)
	case "map":
		return measure("map", newPlain(), chunks)
	case "":
	default:
		return fmt.Errorf("-index %s: use tree or map", index)
	}
	if err := evictions(victims); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	fmt.Printf("\nindex of %d chunks\n%s", chunks, header)
	for _, index := range []string{"tree", "map"} {
		cmd := exec.Command(self, "-index", index, "-quick="+strconv.FormatBool(quick))
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("measure %s: %w", index, err)
		}
	}
	return nil
}
