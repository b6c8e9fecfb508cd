package main

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/kvstored/kvstored/router/bench/trace"
	"github.com/kvstored/kvstored/router/pick"
)

func main() {
	var f flags
	flag.StringVar(&f.trace, "trace", "../shared/traces/conversation_trace.jsonl", "the trace")
	flag.BoolVar(&f.made, "made", false, "agents that are made up, instead of a trace")
	flag.StringVar(&f.workers, "workers", "8,64", "numbers of engines")
	flag.IntVar(&f.room, "room", 1000, "blocks of an engine's cache")
	flag.IntVar(&f.blockTokens, "block-size", 512, "tokens of a block of the trace")
	flag.Float64Var(&f.prefill, "prefill", 8000, "tokens that an engine computes a second")
	flag.Float64Var(&f.running, "running", pick.DefaultSpeeds().Running, "seconds that kvstored-router adds for each request under way")
	flag.Float64Var(&f.answer, "answer", 0.02, "seconds for each token of an answer")
	flag.IntVar(&f.seeds, "seeds", 9, "how often each plays it, with another chance between engines that are alike")
	flag.Parse()
	if err := run(&f); err != nil {
		fmt.Fprintln(os.Stderr, "routing:", err)
		os.Exit(1)
	}
}

type flags struct {
	trace, workers    string
	made              bool
	room, blockTokens int
	prefill, answer   float64
	running           float64
	seeds             int
}

func run(f *flags) error {
	if f.seeds < 1 || f.room < 1 || f.blockTokens < 1 || !(f.prefill > 0) || !(f.answer >= 0) {
		return errors.New("-seeds, -room, -block-size and -prefill must be above 0, -answer not below")
	}
	trace := agents(f.blockTokens)
	if !f.made {
		var err error
		if trace, err = load(f.trace); errors.Is(err, fs.ErrNotExist) {
			fmt.Printf("no trace at %s: nothing is played. It is published with Mooncake (docs/benchmarks.md)\n", f.trace)
			return nil
		} else if err != nil {
			return err
		}
	}
	for _, text := range strings.Split(f.workers, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > 4096 {
			return fmt.Errorf("-workers %q: write numbers from 1 to 4096", f.workers)
		}
		if err := compare(f, n, trace); err != nil {
			return err
		}
	}
	return nil
}

// fewest is the number of engines at which the trace goes as fast as it is.
const fewest = 8

func compare(f *flags, n int, trace []*request) error {
	s := settings{workers: n, room: f.room, blockTokens: f.blockTokens, prefill: f.prefill, answer: f.answer}
	fast := make([]*request, len(trace))
	for i, r := range trace {
		q := *r
		q.at *= fewest / float64(n)
		fast[i] = &q
	}
	var names []string
	runs := make(map[string][]results)
	for seed := range f.seeds {
		all, err := contenders(f, s, uint64(seed+1))
		if err != nil {
			return err
		}
		names = names[:0]
		for _, one := range all {
			c := &cluster{settings: s, router: one.router}
			runs[one.name] = append(runs[one.name], c.play(fast))
			names = append(names, one.name)
		}
	}
	most := s.most(trace)
	fmt.Printf("\n%d engines, %d requests, medians of %d runs; %.2f%% of the tokens came before\n%-16s%10s%10s%10s%10s%22s%10s%14s\n", n, len(trace), f.seeds, 100*most, "", "hits", "of most", "p50, s", "p99, s", "least and most", "busiest", "said in vain")
	for _, name := range names {
		of := func(value func(results) float64) []float64 {
			var all []float64
			for _, r := range runs[name] {
				all = append(all, value(r))
			}
			slices.Sort(all)
			return all
		}
		middle := func(value func(results) float64) float64 { return of(value)[f.seeds/2] }
		hits := middle(func(r results) float64 { return r.hits })
		p99 := of(func(r results) float64 { return r.p99 })
		fmt.Printf("%-16s%9.2f%%%9.1f%%%10.3f%10.3f%11.3f%11.3f%10.2f%13.2f%%\n", name, 100*hits, 100*hits/most,
			middle(func(r results) float64 { return r.p50 }), p99[f.seeds/2], p99[0], p99[f.seeds-1],
			middle(func(r results) float64 { return r.imbalance }), 100*middle(func(r results) float64 { return r.vain }))
	}
	return nil
}

// contender is one way to choose.
type contender struct {
	name string
	router
}

func contenders(f *flags, s settings, seed uint64) ([]contender, error) {
	rnd := rand.New(rand.NewPCG(seed, 1))
	our, err := newOurs(s, f.running, rnd.Float64)
	if err != nil {
		return nil, err
	}
	sent := make([]*engine, s.workers)
	for i := range sent {
		sent[i] = newEngine(f.room, f.prefill)
	}
	fewestOpen := func() least { return least{make([]int, s.workers), rnd} }
	load := fewestOpen()
	return []contender{
		{"round robin", &robin{n: s.workers}}, {"least load", &load}, {"sticky", &sticky{fewestOpen(), make(map[uint64]int)}},
		{"Dynamo's cost", newDynamo(s, rnd)}, {"SGLang's tree", &tree{fewestOpen(), sent}}, {"kvstored-router", our},
	}, nil
}

// load reads a trace. A session is known by its second block, as the first is that
// of all; conversation traces do not say it.
func load(name string) (all []*request, err error) {
	requests, err := trace.Read(name, 0)
	if err != nil {
		return nil, err
	}
	for _, q := range requests {
		r := &request{at: q.Millis / 1000, tokens: q.Input, output: q.Output}
		for _, id := range q.Blocks {
			r.blocks = append(r.blocks, id+1)
		}
		r.session = r.blocks[min(1, len(r.blocks)-1)]
		all = append(all, r)
	}
	return all, nil
}

// agents are sessions of some 20 turns with a common beginning of one of five kinds,
// in which each turn adds two blocks on average.
func agents(blockTokens int) (all []*request) {
	rnd := rand.New(rand.NewPCG(7, 7))
	next := uint64(1000)
	for session := range uint64(400) {
		at := rnd.Float64() * 1800
		var blocks []uint64
		for i := range uint64(8) {
			blocks = append(blocks, 1+session%5*10+i)
		}
		for range 5 + rnd.IntN(30) {
			for range 1 + rnd.IntN(3) {
				next++
				blocks = append(blocks, next)
			}
			all = append(all, &request{at: at, session: session + 1, tokens: len(blocks) * blockTokens, output: 50 + rnd.IntN(300), blocks: slices.Clone(blocks)})
			at += 5 + rnd.ExpFloat64()*20
		}
	}
	slices.SortFunc(all, func(a, b *request) int {
		if a.at < b.at {
			return -1
		}
		return 1
	})
	return all
}
