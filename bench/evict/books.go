package main

import (
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/kvstored/kvstored/key"
)

const (
	booksHeader = "        bytes/entry  with tree  two tiers              one hit    GC mark\n"
	putsHeader  = "       put of 16: 99.99 %   longest   slowest\n"
)

const (
	promptLen   = 512 // chunks: 131,072 tokens
	chunkTokens = 256
	payload     = 4096 // what a chunk occupies, on paper
	batch       = 256  // entries that DRAM holds and lets go of in one call
)

// measureBooks fills a ledger with so many chunks and turns it over once, so
// that there are all the ghosts its policy keeps. Then it builds the tree
// that knows the chunks beside it, and a second ledger, that of a disk that has
// them too. It prints a row.
func measureBooks(name string, chunks int) error {
	prompts := chunks / promptLen
	var sizes sizes
	sizes.look()
	dram, err := turned(newDRAM, name, prompts)
	if err != nil {
		return err
	}
	mark := marking()
	sizes.look()
	use, err := useOf(dram, prompts)
	if err != nil {
		return err
	}
	known := newTree()
	chain := make([]key.Hash, promptLen)
	for i := range prompts {
		prompt(chain, prompts+i)
		if err := known.add(chain, 0); err != nil {
			return err
		}
	}
	runtime.GC()
	sizes.look()
	disk, err := turned(newDisk, name, prompts)
	if err != nil {
		return err
	}
	runtime.GC()
	sizes.look()
	if sizes.err != nil {
		return sizes.err
	}
	runtime.KeepAlive(dram)
	runtime.KeepAlive(known)
	runtime.KeepAlive(disk)
	n := prompts * promptLen
	fmt.Printf("%-8s%11.1f%11.1f%11.1f%13.0f ns a chunk%11v\n", name, sizes.each(1, n), sizes.each(2, n), sizes.each(3, n), use, mark)
	return nil
}

// measurePuts fills a ledger with so many chunks, a few times, and prints a row.
func measurePuts(name string, chunks int) error {
	prompts := chunks / promptLen
	middle, all, err := timed(func(took func(time.Duration)) error {
		b, err := newDRAM(name, prompts)
		if err != nil {
			return err
		}
		return b.fill(prompts, took)
	})
	if err != nil {
		return err
	}
	fmt.Printf("%-8s%17v%10v%10v\n", name, middle.at(0.9999), round(middle.longest), round(all.longest))
	return nil
}

// sizes are what the process had at some moments.
type sizes struct {
	seen []int64
	err  error
}

func (s *sizes) look() {
	n, err := rss()
	s.seen, s.err = append(s.seen, n), errors.Join(s.err, err)
}

// each is the growth from the first moment to another, for each of n.
func (s *sizes) each(moment, n int) float64 {
	return float64(s.seen[moment]-s.seen[0]) / float64(n)
}
