package main

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync/atomic"
	"time"
)

// contender is a rival with its results.
type contender struct {
	name string
	make func() rival
	rival
	events  time.Duration // for all blocks of the first part
	heap    int64
	collect time.Duration
	each    []time.Duration // a query, in each round
	under   []time.Duration // beside events, in order
	wall    []time.Duration
	beside  float64 // events beside queries, million blocks/s
}

// load is what all contenders are given.
type load struct {
	first, rest []event
	blocks      int // of first
	pairs       int // blocks that workers have after first
	prompts     [][]uint64
}

// newLoad splits the events: the last seventh, and at least a tenth, is applied
// beside queries.
func newLoad(c config, trace [][]uint64) load {
	all := newCluster(trace, c.split)
	events := all.copies(c.copies)
	cut := len(events) - max(len(events)/7, len(events)/10)
	l := load{first: events[:cut], rest: events[cut:]}
	for _, e := range l.first {
		l.blocks += e.blocks()
		l.pairs += len(e.prompt) - e.known - len(e.removed)
	}
	for _, e := range l.first[max(0, cut-c.prompts):] {
		l.prompts = append(l.prompts, e.prompt)
	}
	rand.New(rand.NewPCG(1, 2)).Shuffle(len(l.prompts), func(i, j int) { l.prompts[i], l.prompts[j] = l.prompts[j], l.prompts[i] })
	return l
}

func compare(c config, trace [][]uint64, only string) error {
	l := newLoad(c, trace)
	// In this order little is alive when the collector's time for the index is taken.
	all := []*contender{{name: "index", make: newOurs}, {name: "flat", make: newFlat}, {name: "trie", make: newTrie}, {name: "counting", make: newCounting}}
	all = slices.DeleteFunc(all, func(c *contender) bool { return only != "" && c.name != only })
	fmt.Printf("%d workers of %d blocks; %d requests, %d blocks of events, then %d requests beside queries; %d pairs of block and worker\n",
		workers, workerRoom, len(l.first), l.blocks, len(l.rest), l.pairs)
	runtime.GC()
	nothing := collection()
	for _, c := range all {
		c.build(l)
	}
	if err := l.equal(all); err != nil {
		return err
	}
	for range c.rounds {
		for _, c := range all {
			c.each = append(c.each, c.queries(l))
		}
	}
	var least floor
	if o, is := all[0].rival.(*ours); is {
		least = l.newFloor(o)
	}
	for _, c := range all {
		c.together(l)
		c.rival = nil
		runtime.GC()
	}
	report(all, l, nothing)
	if least.reads > 0 {
		fmt.Printf("of a query alone, ns: two reads that depend on each other %d, to write the answer %d; the index's %d\n",
			least.reads, least.write, median(all[0].each))
	}
	return nil
}

// collection is how long the collector takes for all that is alive.
func collection() time.Duration {
	best := time.Hour
	for range 30 {
		begin := time.Now()
		runtime.GC()
		best = min(best, time.Since(begin))
	}
	return best
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// build applies the first events. Of the collector's time, that without the
// contender is taken off.
func (c *contender) build(l load) {
	before, idle := heap(), collection()
	c.rival = c.make()
	begin := busy()
	for _, e := range l.first {
		c.apply(e)
	}
	c.events = busy() - begin
	c.heap = heap() - before
	c.collect = collection() - idle
}

// equal compares the answers of all.
func (l load) equal(all []*contender) error {
	hits, total := 0, 0
	for _, p := range l.prompts {
		want := make(depths)
		all[0].query(p, want)
		for _, c := range all[1:] {
			got := make(depths)
			if c.query(p, got); !maps.Equal(got, want) {
				return fmt.Errorf("%s and %s differ: %v, %v", all[0].name, c.name, want, got)
			}
		}
		most := int32(0)
		for _, n := range want {
			most = max(most, n)
		}
		hits += int(most)
		total += len(p)
	}
	fmt.Printf("%d prompts, mean %.1f blocks, of which the best worker has %.1f; all answers equal\n",
		len(l.prompts), float64(total)/float64(len(l.prompts)), float64(hits)/float64(len(l.prompts)))
	return nil
}

// ask asks one query as a router would: the answer names the workers.
func (c *contender) ask(p []uint64, out depths) {
	if o, is := c.rival.(*ours); is {
		o.find(p)
		return
	}
	clear(out)
	c.query(p, out)
}

// queries returns the processor time of a query, alone. A router has just made
// the hashes that it asks for, so they are read before; how long that takes is
// taken off.
func (c *contender) queries(l load) time.Duration {
	sum := uint64(0)
	read := l.loop(func(p []uint64) { sum ^= touch(p) })
	out := make(depths)
	both := l.loop(func(p []uint64) { sum ^= touch(p); c.ask(p, out) })
	runtime.KeepAlive(sum)
	return both - read
}

// loop returns the processor time of one call.
func (l load) loop(do func(p []uint64)) time.Duration {
	n := 0
	begin := busy()
	for busy()-begin < 300*time.Millisecond {
		for range 200 {
			do(l.prompts[n%len(l.prompts)])
			n++
		}
	}
	return (busy() - begin) / time.Duration(n)
}

// touch reads hashes.
func touch(p []uint64) (sum uint64) {
	for _, h := range p {
		sum ^= h
	}
	return sum
}

// together asks queries while another goroutine applies the rest of the events
// as fast as it can.
func (c *contender) together(l load) {
	var applied atomic.Int64
	done := make(chan float64)
	go func() {
		runtime.LockOSThread()
		begin, blocks := busy(), 0
		for i, e := range l.rest {
			c.apply(e)
			blocks += e.blocks()
			applied.Store(int64(i + 1))
		}
		done <- float64(blocks) / 1e6 / (busy() - begin).Seconds()
	}()
	out := make(depths)
	rnd, sum := rand.New(rand.NewPCG(3, 4)), uint64(0)
	for {
		n := int(applied.Load())
		if n == len(l.rest) {
			break
		}
		if n == 0 {
			continue
		}
		p := l.rest[n-1-rnd.IntN(min(n, 500))].prompt
		sum ^= touch(p)
		wall, begin := time.Now(), busy()
		c.ask(p, out)
		c.under = append(c.under, busy()-begin)
		c.wall = append(c.wall, time.Since(wall))
	}
	runtime.KeepAlive(sum)
	c.beside = <-done
	slices.Sort(c.under)
	slices.Sort(c.wall)
}

func at(sorted []time.Duration, share float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[int(share*float64(len(sorted)-1))]
}

func micro(d time.Duration) string { return fmt.Sprintf("%.1f", float64(d)/1e3) }

func report(all []*contender, l load, nothing time.Duration) {
	fmt.Printf("\n%-46s", "")
	for _, c := range all {
		fmt.Printf("%12s", c.name)
	}
	row := func(name string, value func(*contender) string) {
		fmt.Printf("\n%-46s", name)
		for _, c := range all {
			fmt.Printf("%12s", value(c))
		}
	}
	first := all[0]
	row("queries alone, a second", func(c *contender) string { return fmt.Sprintf("%.0f", 1/median(c.each).Seconds()) })
	row("  "+first.name+" to it", func(c *contender) string {
		ratios := make([]float64, len(c.each))
		for i := range c.each {
			ratios[i] = float64(c.each[i]) / float64(first.each[i])
		}
		return fmt.Sprintf("%.1fx", median(ratios))
	})
	row("events alone, million blocks/s", func(c *contender) string { return fmt.Sprintf("%.2f", float64(l.blocks)/1e6/c.events.Seconds()) })
	row("beside events: queries", func(c *contender) string { return fmt.Sprint(len(c.under)) })
	for _, share := range []float64{0.5, 0.99, 0.999} {
		row(fmt.Sprintf("  p%v, us of processor", share*100), func(c *contender) string { return micro(at(c.under, share)) })
		row(fmt.Sprintf("  p%v, us on the wall", share*100), func(c *contender) string { return micro(at(c.wall, share)) })
	}
	row("  events, million blocks/s", func(c *contender) string { return fmt.Sprintf("%.2f", c.beside) })
	row("heap, bytes for each block of a worker", func(c *contender) string { return fmt.Sprintf("%.1f", float64(c.heap)/float64(l.pairs)) })
	row("collection, ms more than without it", func(c *contender) string { return fmt.Sprintf("%.1f", c.collect.Seconds()*1e3) })
	fmt.Printf("\n(a collection without any of them: %.1f ms)\n", nothing.Seconds()*1e3)
}

func median[T int64 | float64 | time.Duration](all []T) T {
	sorted := slices.Sorted(slices.Values(all))
	return sorted[len(sorted)/2]
}
