package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/kvstored/kvstored/internal/radix"
	"github.com/kvstored/kvstored/key"
)

// chainLen is the chunks of a prompt: 2 million tokens in chunks of 256.
const chainLen = 8192

// commit is how many chunks are added or put at a time.
const commit = 16

const indexHeader = "        bytes/chunk  match warm  match cold   add of 16: 99.99 %   longest   slowest    GC mark\n"

// index is what both variants do.
type index interface {
	add(chain []key.Hash, from int) error
	match(chain []key.Hash, locs []radix.Loc) int
}

// tree is the index of the store.
type tree struct{ *radix.Tree }

func newTree() index { return tree{radix.New()} }

func (t tree) add(chain []key.Hash, from int) error {
	return t.Add(key.SpaceID{}, chain, from, 1)
}

func (t tree) match(chain []key.Hash, locs []radix.Loc) int {
	return t.Match(key.SpaceID{}, chain, locs)
}

// plain is a map with an entry for each chunk.
type plain struct{ of map[key.Key]*chunk }

type chunk struct {
	parent *chunk
	loc    radix.Loc
	kids   int
}

func newPlain() index { return plain{make(map[key.Key]*chunk)} }

func (p plain) add(chain []key.Hash, from int) error {
	var parent *chunk
	if from > 0 {
		parent = p.of[key.Key{Hash: chain[from-1]}]
	}
	for _, h := range chain[from:] {
		k := key.Key{Hash: h}
		c := p.of[k]
		if c == nil {
			c = &chunk{parent: parent}
			if p.of[k] = c; parent != nil {
				parent.kids++
			}
		}
		c.loc |= 1
		parent = c
	}
	return nil
}

func (p plain) match(chain []key.Hash, locs []radix.Loc) int {
	for i, h := range chain {
		c := p.of[key.Key{Hash: h}]
		if c == nil {
			return i
		}
		locs[i] = c.loc
	}
	return len(chain)
}

// prompt fills chain with hashes that no other prompt has.
func prompt(chain []key.Hash, seed int) {
	x := uint64(seed) << 32
	for i := range chain {
		x++
		z := x * 0x9e3779b97f4a7c15 // splitmix64
		z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
		binary.LittleEndian.PutUint64(chain[i][:], z^z>>27)
		binary.LittleEndian.PutUint64(chain[i][8:], x)
	}
}

// measureIndex builds an index of so many chunks in chains of chainLen and
// prints a row.
func measureIndex(name string, fresh func() index, chunks int) error {
	before, err := rss()
	if err != nil {
		return err
	}
	prompts := chunks / chainLen
	x := fresh()
	if err := build(x, prompts, func(time.Duration) {}); err != nil {
		return err
	}
	mark := marking()
	after, err := rss()
	if err != nil {
		return err
	}
	chain, locs := make([]key.Hash, chainLen), make([]radix.Loc, chainLen)
	var cold, warm times
	for i := range min(200, prompts) { // not touched since it was built, then again
		prompt(chain, i*(prompts/min(200, prompts)))
		for _, out := range []*times{&cold, &warm} {
			start := time.Now()
			if n := x.match(chain, locs); n != chainLen {
				return fmt.Errorf("%s: matched %d of %d", name, n, chainLen)
			}
			out.add(time.Since(start))
		}
	}
	x = nil
	middle, all, err := timed(func(took func(time.Duration)) error { return build(fresh(), prompts, took) })
	if err != nil {
		return err
	}
	fmt.Printf("%-8s%11.1f%12v%12v%20v%10v%10v%11v\n", name, float64(after-before)/float64(prompts*chainLen),
		warm.at(0.5), cold.at(0.5), middle.at(0.9999), round(middle.longest), round(all.longest), mark)
	return nil
}

// build adds so many prompts, as they come in commits, and says how long each
// took.
func build(x index, prompts int, took func(time.Duration)) error {
	chain := make([]key.Hash, chainLen)
	for p := range prompts {
		prompt(chain, p)
		for from := 0; from < chainLen; from += commit {
			start := busy()
			if err := x.add(chain[:from+commit], from); err != nil {
				return err
			}
			took(busy() - start)
		}
	}
	return nil
}

// rss is the memory the kernel counts for this process.
func rss() (int64, error) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, fmt.Errorf("this needs Linux: %w", err)
	}
	for line := range bytes.Lines(status) {
		if f := bytes.Fields(line); len(f) == 3 && string(f[0]) == "VmRSS:" {
			kib, err := strconv.ParseInt(string(f[1]), 10, 64)
			return kib << 10, err
		}
	}
	return 0, fmt.Errorf("no VmRSS in /proc/self/status")
}
