package main

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"runtime/pprof"
)

func main() {
	var c config
	flag.StringVar(&c.trace, "trace", "../shared/traces/conversation_trace.jsonl", "the trace")
	flag.IntVar(&c.copies, "copies", 7, "rounds over the trace, each with blocks of its own")
	flag.IntVar(&c.split, "split", 1, "parts of each block of the trace")
	flag.IntVar(&c.limit, "limit", 0, "requests of the trace; 0 = all")
	flag.IntVar(&c.rounds, "rounds", 3, "times that the queries are asked by each in turn")
	flag.IntVar(&c.prompts, "prompts", 2000, "the last so many prompts are asked for")
	flag.IntVar(&c.flat, "flat", 0, "only show how memory goes over so many million blocks of events")
	only := flag.String("only", "", "one of trie, counting, flat, index")
	profile := flag.String("profile", "", "write a CPU profile of all that is measured to this file")
	flag.Parse()
	if err := measure(c, *only, *profile); err != nil {
		fmt.Fprintln(os.Stderr, "router:", err)
		os.Exit(1)
	}
}

// config has the flags.
type config struct {
	trace                        string
	copies, split, limit, rounds int
	prompts                      int
	flat                         int
}

func measure(c config, only, profile string) error {
	if c.copies < 2 && c.split == 1 || c.copies < 1 || c.split < 1 || c.split > 256 {
		return errors.New("-copies must be at least 2, or 1 with -split; -split 1 to 256")
	}
	trace, err := loadTrace(c.trace, c.limit)
	if errors.Is(err, fs.ErrNotExist) {
		fmt.Printf("no trace at %s: nothing is measured. It is published with Mooncake (docs/benchmarks.md)\n", c.trace)
		return nil
	}
	if err != nil {
		return err
	}
	if profile != "" {
		f, err := os.Create(profile)
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }()
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	runtime.LockOSThread()
	if c.flat > 0 {
		return overTime(c, trace)
	}
	return compare(c, trace, only)
}
