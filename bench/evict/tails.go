package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/kvstored/kvstored/policy"
)

// million is how many entries tails has.
const million = 1_000_000

// tails prints how long one eviction takes among a million entries in chains
// of 50, each victim replaced by a new chunk: the middle, and the slowest.
func tails(victims int) error {
	fmt.Printf("\nns of one eviction among a million\n%-8s%8s%8s%8s\n", "policy", "p50", "p99", "p99.9")
	for _, name := range policy.All() {
		p, err := newOwner(name, million, million)
		if err != nil {
			return err
		}
		took, err := spans(p, victims)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		slices.Sort(took)
		at := func(share float64) int64 { return took[int(share*float64(len(took)-1))].Nanoseconds() }
		fmt.Printf("%-8s%8d%8d%8d\n", name, at(0.5), at(0.99), at(0.999))
	}
	return nil
}

// spans evicts and adds in turn, and returns how long each eviction took.
func spans(p *owner, victims int) ([]time.Duration, error) {
	const length = 50 // of a chain
	planner, _ := p.Policy.(policy.Planner)
	chain, hash := make([]uint64, length), uint64(0)
	add := func(id policy.ID) {
		m := policy.Meta{Hash: hash + 1}
		if at := hash % length; at > 0 {
			m.Parent = hash
		} else if planner != nil {
			for i := range chain {
				chain[i] = hash + 1 + uint64(i)
			}
			planner.Observe(policy.Request{Chain: chain})
		}
		hash++
		if planner == nil {
			p.Miss(m.Hash, 1)
		}
		p.add(id, m)
	}
	for id := range policy.ID(million) {
		add(id)
	}
	took := make([]time.Duration, 0, victims)
	for range victims {
		start := time.Now()
		id, ok := p.Evict(func(policy.ID) bool { return true })
		took = append(took, time.Since(start))
		if !ok {
			return nil, fmt.Errorf("nothing to evict")
		}
		add(id)
	}
	return took, nil
}
