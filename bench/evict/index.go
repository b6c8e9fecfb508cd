package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"time"

	"github.com/kvstored/kvstored/internal/radix"
	"github.com/kvstored/kvstored/key"
)

// chainLen is the chunks of a prompt: 2 million tokens in chunks of 256.
const chainLen = 8192

const header = "        bytes/chunk  match warm  match cold   add of 256: 99.9 %   longest   least GC\n"

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
	return t.Match(key.SpaceID{}, chain, true, locs)
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

// measure builds an index of so many chunks in chains of chainLen and prints
// a row.
func measure(name string, x index, chunks int) error {
	before, err := rss()
	if err != nil {
		return err
	}
	chain, locs := make([]key.Hash, chainLen), make([]radix.Loc, chainLen)
	prompts := chunks / chainLen
	adds := make([]time.Duration, 0, prompts*chainLen/256)
	for p := range prompts {
		prompt(chain, p)
		for from := 0; from < chainLen; from += 256 { // as commits come
			start := time.Now()
			if err := x.add(chain[:from+256], from); err != nil {
				return err
			}
			adds = append(adds, time.Since(start))
		}
	}
	runtime.GC()
	after, err := rss()
	if err != nil {
		return err
	}
	var cold, warm []time.Duration
	for i := range min(200, prompts) { // not touched since it was built, then again
		prompt(chain, i*(prompts/min(200, prompts)))
		for _, out := range []*[]time.Duration{&cold, &warm} {
			start := time.Now()
			if n := x.match(chain, locs); n != chainLen {
				return fmt.Errorf("%s: matched %d of %d", name, n, chainLen)
			}
			*out = append(*out, time.Since(start))
		}
	}
	var gcs []time.Duration
	for range 5 { // what the machine does besides only adds
		start := time.Now()
		runtime.GC()
		gcs = append(gcs, time.Since(start))
	}
	slices.Sort(adds)
	fmt.Printf("%-8s%11.1f%12v%12v%20v%10v%11v\n", name, float64(after-before)/float64(prompts*chainLen),
		median(warm), median(cold), round(adds[len(adds)*999/1000]), round(adds[len(adds)-1]), round(slices.Min(gcs)))
	runtime.KeepAlive(x)
	return nil
}

func median(ds []time.Duration) time.Duration {
	slices.Sort(ds)
	return round(ds[len(ds)/2])
}

// round keeps about three digits.
func round(d time.Duration) time.Duration {
	switch {
	case d > time.Millisecond:
		return d.Round(10 * time.Microsecond)
	case d > 10*time.Microsecond:
		return d.Round(100 * time.Nanosecond)
	}
	return d.Round(10 * time.Nanosecond)
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
