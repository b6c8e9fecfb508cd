package policy_test

import (
	"fmt"

	"github.com/kvstored/kvstored/policy"
)

// A store of two entries drives a policy: a miss is told before the victim for
// it is asked for, and an entry that is in use is refused, until Allow.
func ExamplePolicy() {
	p, err := policy.New("lru", 2)
	if err != nil {
		fmt.Println(err)
		return
	}
	p.Add(0, policy.Meta{Hash: 100, Size: 1})
	p.Add(1, policy.Meta{Hash: 101, Size: 1})
	p.Touch(0) // a hit: 1 is the least recently used now

	inUse := map[policy.ID]bool{1: true}
	free := func(id policy.ID) bool { return !inUse[id] }

	p.Miss(102, 1)
	victim, found := p.Evict(free)
	fmt.Println(victim, found)
	p.Add(victim, policy.Meta{Hash: 102, Size: 1}) // the number is used again

	delete(inUse, 1)
	p.Allow(1)
	p.Miss(103, 1)
	victim, found = p.Evict(free)
	fmt.Println(victim, found)
	// Output:
	// 0 true
	// 1 true
}
