package explain

import (
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kvstored/kvstored/key"
)

// MostRuns is how many stretches a Tree is made of; others are left out.
const MostRuns = 1 << 17

// Places are the tiers that are told apart: DRAM, disk, remote.
const Places = 3

// Run is a stretch of chunks without a branch.
type Run struct {
	Number, Parent uint32 // Parent 0 is none
	Detached       bool   // the way to it is not known
	Space          int    // position among the spaces
	First          key.Hash
	Length         int // chunks, those that are in no tier included
	Use
}

// Use is how much there is of something, and how it was used.
type Use struct {
	Chunks int         // in any tier
	In     [Places]int // in each
	Heat   float64     // requests that ended there, the old ones counting less
	Last   time.Time   // when it was asked for or stored; zero: not remembered
}

func (u *Use) add(o *Use) {
	u.Chunks += o.Chunks
	for p := range u.In {
		u.In[p] += o.In[p]
	}
	u.Heat += o.Heat
	if o.Last.After(u.Last) {
		u.Last = o.Last
	}
}

// Space is a space and its bytes.
type Space struct {
	ID    key.SpaceID
	Bytes [Places]int64 // of its chunks in each tier; 0 where that is not known
	Use
}

// chunkBytes is the mean of the space's chunks in a tier, or else in another; 0 where
// nothing is known.
func (s *Space) chunkBytes(p int) float64 {
	for _, at := range []int{p, 0, 1} {
		if s.In[at] > 0 && s.Bytes[at] > 0 {
			return float64(s.Bytes[at]) / float64(s.In[at])
		}
	}
	return 0
}

// Node is a prefix: the chunks from behind one branch to the next.
type Node struct {
	Space    int // position in Spaces
	Parent   int // position in Nodes; -1: the beginning of prompts
	Hash     key.Hash
	Detached bool // it is the topmost of which anything is known, and no beginning
	Depth    int  // chunks before it, as far as they are known
	Length   int  // its own chunks, those that are in no tier included
	Branches int  // prefixes that go on behind it
	Own      Use
	All      Use // of it and all that stands on it
}

// Summary is all stored prefixes; parents come before children.
type Summary struct {
	At      time.Time
	Spaces  []Space
	Nodes   []Node
	LeftOut int // stretches
}

// Bytes estimates what so many chunks of a space occupy in a tier, by the mean of its
// chunks there.
func (t *Summary) Bytes(space, p, chunks int) int64 {
	return int64(t.Spaces[space].chunkBytes(p) * float64(chunks))
}

// Size is what the chunks of a prefix occupy, each counted once.
func (t *Summary) Size(n *Node) int64 { return t.Bytes(n.Space, 0, n.All.Chunks) }

// builder makes a Tree of runs.
type builder struct {
	tree        *Summary
	runs        []Run
	first, next []int32 // child and sibling of each run, by position; -1 is none
}

// NewSummary makes a tree. It takes over the slices.
func NewSummary(at time.Time, spaces []Space, runs []Run) *Summary {
	b := builder{tree: &Summary{At: at, Spaces: spaces}, runs: runs, first: make([]int32, len(runs)), next: make([]int32, len(runs))}
	byNumber := make(map[uint32]int32, len(runs))
	for i := range runs {
		b.first[i], b.next[i] = -1, -1
		if _, twice := byNumber[runs[i].Number]; !twice {
			byNumber[runs[i].Number] = int32(i)
		}
	}
	var roots []int32
	for i := range runs {
		r := &runs[i]
		if byNumber[r.Number] != int32(i) {
			continue
		}
		if above, ok := byNumber[r.Parent]; ok {
			b.next[i], b.first[above] = b.first[above], int32(i)
			continue
		}
		r.Detached = r.Detached || r.Parent != 0
		roots = append(roots, int32(i))
	}
	for _, i := range roots {
		b.grow(i)
	}
	nodes := b.tree.Nodes
	for i := len(nodes) - 1; i >= 0; i-- {
		n := &nodes[i]
		n.All.add(&n.Own)
		if n.Parent >= 0 {
			nodes[n.Parent].All.add(&n.All)
			nodes[n.Parent].Branches++
		} else {
			spaces[n.Space].add(&n.All)
		}
	}
	return b.tree
}

// pending is a run that is still to become a node.
type pending struct {
	run    int32
	parent int
	depth  int
}

// grow adds a run and all that stands on it. Runs without a branch between them are one
// node.
func (b *builder) grow(root int32) {
	for todo := []pending{{root, -1, 0}}; len(todo) > 0; {
		at := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		r := &b.runs[at.run]
		n := Node{Space: r.Space, Parent: at.parent, Hash: r.First, Detached: r.Detached, Depth: at.depth, Length: r.Length, Own: r.Use}
		last := at.run
		for b.first[last] >= 0 && b.next[b.first[last]] < 0 { // one child
			last = b.first[last]
			n.Own.add(&b.runs[last].Use)
			n.Length += b.runs[last].Length
		}
		b.tree.Nodes = append(b.tree.Nodes, n)
		for child := b.first[last]; child >= 0; child = b.next[child] {
			todo = append(todo, pending{child, len(b.tree.Nodes) - 1, at.depth + n.Length})
		}
	}
}

// ErrUnknown says that there is no such prefix.
var ErrUnknown = errors.New("nothing that is stored")

// Find is the position of the prefix whose hash begins with so many hex digits. space ""
// is any.
func (t *Summary) Find(space, digits string) (int, error) {
	digits = strings.ToLower(digits)
	found := -1
	for i := range t.Nodes {
		n := &t.Nodes[i]
		if space != "" && hex.EncodeToString(t.Spaces[n.Space].ID[:]) != space || !strings.HasPrefix(hex.EncodeToString(n.Hash[:]), digits) {
			continue
		}
		if found >= 0 {
			return 0, fmt.Errorf("%q is the beginning of more than one prefix's hash; give more digits, or the space", digits)
		}
		found = i
	}
	if found < 0 {
		return 0, fmt.Errorf("no prefix begins behind a branch with chunk %.40q: %w", digits, ErrUnknown)
	}
	return found, nil
}

// Order is by what prefixes are listed, the most of it first.
type Order string

// The orders.
const (
	ByBytes Order = "bytes"
	byHeat  Order = "heat"
	byAge   Order = "age" // what was not used for the longest first; what is not remembered before that
	byDepth Order = "depth"
)

// Orders are all of them.
func Orders() []Order { return []Order{ByBytes, byHeat, byAge, byDepth} }

// List sorts the positions of the nodes that match and have chunks.
func (t *Summary) List(by Order, match func(i int) bool) []int {
	var list []int
	for i := range t.Nodes {
		if t.Nodes[i].All.Chunks > 0 && match(i) {
			list = append(list, i)
		}
	}
	slices.SortFunc(list, func(i, j int) int { return cmp.Or(t.compare(by, i, j), cmp.Compare(i, j)) })
	return list
}

func (t *Summary) compare(by Order, i, j int) int {
	a, b := &t.Nodes[i], &t.Nodes[j]
	switch by {
	case byHeat:
		return cmp.Compare(b.All.Heat, a.All.Heat)
	case byAge:
		return a.All.Last.Compare(b.All.Last)
	case byDepth:
		return cmp.Compare(b.Depth, a.Depth)
	}
	return cmp.Compare(t.Size(b), t.Size(a))
}

// Within reports whether a node is another one or stands on it; -1 is the beginning.
func (t *Summary) Within(i, at int) bool {
	for at >= 0 && i > at { // a parent comes before its children
		i = t.Nodes[i].Parent
	}
	return at < 0 || i == at
}

// Largest is the positions of at most so many of the nodes that match, the largest, in
// the order of Nodes. With a node its ancestors are among them as far as they match,
// since none is smaller.
func (t *Summary) Largest(most int, match func(i int) bool) []int {
	list := t.List(ByBytes, match)
	list = list[:min(most, len(list))]
	slices.Sort(list)
	return list
}
