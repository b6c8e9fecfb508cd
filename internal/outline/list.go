package outline

import (
	"cmp"
	"slices"
)

// Order is by what prefixes are listed, the most of it first.
type Order string

// The orders.
const (
	ByBytes Order = "bytes"
	ByHeat  Order = "heat"
	ByAge   Order = "age" // what was not used for the longest first; what is not remembered before that
	ByDepth Order = "depth"
)

// Orders are all of them.
func Orders() []Order { return []Order{ByBytes, ByHeat, ByAge, ByDepth} }

// List sorts the positions of the nodes that match.
func (t *Tree) List(by Order, match func(*Node) bool) []int {
	var list []int
	for i := range t.Nodes {
		if n := &t.Nodes[i]; n.All.Chunks > 0 && match(n) {
			list = append(list, i)
		}
	}
	slices.SortFunc(list, func(i, j int) int { return cmp.Or(t.compare(by, i, j), cmp.Compare(i, j)) })
	return list
}

func (t *Tree) compare(by Order, i, j int) int {
	a, b := &t.Nodes[i], &t.Nodes[j]
	switch by {
	case ByHeat:
		return cmp.Compare(b.All.Heat, a.All.Heat)
	case ByAge:
		return a.All.Last.Compare(b.All.Last)
	case ByDepth:
		return cmp.Compare(b.Depth, a.Depth)
	}
	return cmp.Compare(t.Size(b), t.Size(a))
}

// Within reports whether a node is another one or stands on it; -1 is the beginning.
func (t *Tree) Within(i, at int) bool {
	for at >= 0 && i > at { // a parent comes before its children
		i = t.Nodes[i].Parent
	}
	return at < 0 || i == at
}

// Largest is the positions of at most so many of the nodes that match, the largest, in
// the order of Nodes. With a node its ancestors are among them as far as they match,
// since none is smaller.
func (t *Tree) Largest(most int, match func(i int) bool) []int {
	var list []int
	for i := range t.Nodes {
		if match(i) {
			list = append(list, i)
		}
	}
	if len(list) > most {
		slices.SortFunc(list, func(i, j int) int { return cmp.Or(t.compare(ByBytes, i, j), cmp.Compare(i, j)) })
		list = list[:most]
		slices.Sort(list)
	}
	return list
}
