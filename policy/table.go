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
	{"arc", newARC},
	{"s3fifo", newS3FIFO},
}

// planner is the policy that has to observe requests to be of use.
const planner = "tenure"

// New returns an empty policy by name. The capacity is in the unit of
// Meta.Size; policies that divide their room use it.
func New(name string, capacity int64) (Policy, error) {
	for _, t := range table {
		if t.name == name {
			return t.make(capacity), nil
		}
	}
	if name == planner {
		return newTenure(), nil
	}
	return nil, fmt.Errorf("policy: no policy is called %q; there are %s", name, strings.Join(append(Names(), Planners()...), ", "))
}

// Planners lists the policies that are a [Planner].
func Planners() []string { return []string{planner} }

// All lists all policies: those that any owner can use, and the planners.
func All() []string { return append(Names(), Planners()...) }

// Names lists the policies that any owner can use.
func Names() []string {
	var names []string
	for _, t := range table {
		names = append(names, t.name)
	}
	return names
}

// The optional interfaces: an owner finds them with a type assertion, so that
// only this holds a method to its name.
var (
	_ Planner    = (*tenure)(nil)
	_ Bounder    = (*tenure)(nil)
	_ MetaReader = (*pair)(nil)
	_ Leaver     = (*arc)(nil)
	_ Leaver     = (*s3fifo)(nil)
	_ Renewer    = (*lru)(nil)
	_ Renewer    = (*arc)(nil)
)
