package index

import (
	"cmp"
	"slices"
)

// leaf is a block on which nothing stands, as trim found it.
type leaf struct {
	shard *Shard
	key   uint64
	stamp uint32
}

const (
	trimLeaves = 4096 // the most leaves of one round
	trimRounds = 1024 // of one call
)

// trim drops the coldest leaves of all shards until a sixteenth of the budget is
// free again. A block is as cold as when it was last stored or found, or, if
// later, a block that stood on it.
func (x *Index) trim() {
	if x.bytes.Load() <= x.options.Bytes {
		return
	}
	x.trimming.Lock()
	defer x.trimming.Unlock()
	if x.bytes.Load() <= x.options.Bytes {
		return
	}
	goal := x.options.Bytes - x.options.Bytes/16
	for range trimRounds {
		all := x.collect()
		for _, l := range all {
			if x.bytes.Load() <= goal {
				return
			}
			l.shard.cut(l, goal)
		}
		if len(all) == 0 || x.bytes.Load() <= goal {
			return
		}
	}
}

// collect returns the coldest leaves of all shards, the coldest first.
func (x *Index) collect() []leaf {
	x.coldest = x.coldest[:0]
	for _, s := range *x.shards.Load() {
		s.mu.Lock()
		t := s.tree.Load()
		for n := uint32(root + 1); n < t.blocks.used; n++ {
			if b := t.blocks.at(n); b.child == 0 && b.own != empty {
				x.coldest = keepColdest(x.coldest, leaf{s, b.key.Load(), b.stamp.Load()})
			}
		}
		s.mu.Unlock()
	}
	slices.SortStableFunc(x.coldest, func(a, b leaf) int { return cmp.Compare(a.stamp, b.stamp) })
	return x.coldest
}

// keepColdest adds a leaf to a heap with the warmest on top, unless all that are
// in it are colder and it is full.
func keepColdest(heap []leaf, l leaf) []leaf {
	if len(heap) < trimLeaves {
		heap = append(heap, l)
		for i := len(heap) - 1; i > 0 && heap[(i-1)/2].stamp < heap[i].stamp; i = (i - 1) / 2 {
			heap[i], heap[(i-1)/2] = heap[(i-1)/2], heap[i]
		}
		return heap
	}
	if l.stamp >= heap[0].stamp {
		return heap
	}
	heap[0] = l
	for i := 0; ; {
		warmest := i
		for _, child := range [2]int{2*i + 1, 2*i + 2} {
			if child < len(heap) && heap[child].stamp > heap[warmest].stamp {
				warmest = child
			}
		}
		if warmest == i {
			return heap
		}
		heap[i], heap[warmest] = heap[warmest], heap[i]
		i = warmest
	}
}

// cut drops a leaf that is still one and was not used since, and those above it
// on which then nothing stands and that are no warmer. So a whole prompt goes
// that was not used again.
func (s *Shard) cut(l leaf, goal int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.tree.Load()
	for n := t.table.get(l.key); n != 0 && n != root; {
		b := t.blocks.at(n)
		if b.child != 0 || b.stamp.Load() > l.stamp {
			break
		}
		parent := b.parent()
		t.sets.scratch = t.sets.all(t.sets.scratch[:0], b.own)
		for _, e := range t.sets.scratch {
			s.count(e.column().slot(), -e.media())
			s.disclaim(b.key.Load(), e)
		}
		t.drop(n)
		s.mu.trimmed++
		n = parent
		if s.index.bytes.Load()-s.mu.bytes+s.liveBytes() <= goal {
			break
		}
	}
	s.settle()
}
