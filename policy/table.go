package policy

import (
	"fmt"
	"strings"
)

// table is every policy there is, in the order users see. A new policy is one
// file and one line here.
var table = []struct {
	name string
	make func(capacity int64) Policy
}{
	{"lru", newLRU},
	{"lfu", newLFU},
	{"fifo", newFIFO},
	{"mru", newMRU},
	{"sieve", newSieve},
	{"arc", newARC},
	{"gdsf", newGDSF},
	{"s3fifo", newS3FIFO},
}

// New returns an empty policy by name. The capacity is in the unit of
// Meta.Size; policies that divide their room use it.
func New(name string, capacity int64) (Policy, error) {
	for _, t := range table {
		if t.name == name {
			return t.make(capacity), nil
		}
	}
	return nil, fmt.Errorf("policy: no policy is called %q; there are %s", name, strings.Join(Names(), ", "))
}

// Names lists the policies there are.
func Names() []string {
	var names []string
	for _, t := range table {
		names = append(names, t.name)
	}
	return names
}
