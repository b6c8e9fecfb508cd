package main

import (
	"fmt"
	"time"

	"github.com/kvstored/kvstored/policy"
)

// evictions prints how long a victim takes when so many entries that would go
// before it are refused, and one is put in for each that goes.
func evictions(victims int) error {
	fmt.Printf("ns per eviction, of them so many refused\n%-8s%8s%8s%8s  last/first\n", "policy", "1e3", "1e4", "1e5")
	for _, name := range policy.Names() {
		fmt.Printf("%-8s", name)
		var first, last float64
		for _, refused := range []int{1e3, 1e4, 1e5} {
			ns, err := evict(name, refused, victims)
			if err != nil {
				return err
			}
			if first == 0 {
				first = ns
			}
			last = ns
			fmt.Printf("%8.0f", ns)
		}
		fmt.Printf("%8.2f\n", last/first)
	}
	return nil
}

// room is the capacity in every case, so that there are as many ghosts.
const room = 1 << 17

// evict returns the least of five runs: what the machine does besides only
// adds.
func evict(name string, refused, victims int) (ns float64, err error) {
	p, err := newOwner(name, room, refused+1)
	if err != nil {
		return 0, err
	}
	free := policy.ID(refused)
	for id := range free + 1 {
		p.add(id, policy.Meta{Hash: uint64(id)})
	}
	ok := func(id policy.ID) bool { return id >= free }
	next := uint64(refused)
	for range 5 {
		start := time.Now()
		for range victims {
			id, found := p.Evict(ok)
			if !found {
				return 0, fmt.Errorf("%s has no victim", name)
			}
			next++
			p.Miss(next, 1)
			p.add(id, policy.Meta{Hash: next})
		}
		took := float64(time.Since(start).Nanoseconds()) / float64(victims)
		if ns == 0 || took < ns {
			ns = took
		}
	}
	return ns, nil
}

// owner is whose entries, all of size 1, a policy has.
type owner struct {
	policy.Policy
	hashes []uint64 // by ID
}

// newOwner has IDs below n.
func newOwner(name string, capacity int64, n int) (*owner, error) {
	p, err := policy.New(name, capacity)
	if err != nil {
		return nil, err
	}
	o := &owner{p, make([]uint64, n)}
	if p, ok := p.(policy.MetaReader); ok {
		p.ReadMetaFrom(func(id policy.ID) policy.Meta { return policy.Meta{Hash: o.hashes[id], Size: 1} })
	}
	return o, nil
}

func (o *owner) add(id policy.ID, m policy.Meta) {
	o.hashes[id], m.Size = m.Hash, 1
	o.Add(id, m)
}
