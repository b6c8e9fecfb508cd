package stack

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

// Left is what a tier below DRAM was not given when the daemon ended.
type Left struct {
	Volume
	Err error // why; nil where the tier would not take it
}

// FlushLast is the flush of a daemon that ends: durable, into all tiers at once
// and until ctx ends, the most valuable chunks first. No client may store any more. It
// returns what each tier is left without; a tier that has all is not named. What
// write mode selective does not write is not left, nor what a tier's policy declines: it
// is asked as it is when DRAM evicts a chunk.
func (s *flusher) FlushLast(ctx context.Context) map[tier.Place]Left {
	errs := make([]error, len(s.levels.below))
	var flushes sync.WaitGroup
	for i, l := range s.levels.below {
		w := l.writer
		flushes.Go(func() {
			w.offerDeclined(false)
			s.valuableFirst(w)
			errs[i] = w.flushTo(ctx, true, false)
		})
	}
	flushes.Wait()
	left := make(map[tier.Place]Left)
	for i, l := range s.levels.below {
		if v := s.left(l.writer); v.Chunks > 0 || errs[i] != nil {
			left[l.place] = Left{v, errs[i]}
		}
	}
	return left
}

// left is what the tier lacks and would have taken.
func (s *flusher) left(w *writer) Volume {
	if w.to.rank == 1 && w.when.mode != WriteSelective {
		return s.transit.of(&w.queue).Plus(s.unwritten())
	}
	bytes := s.transit.of(&w.queue).Bytes
	w.mu.Lock()
	defer w.mu.Unlock()
	b := &w.mu.backlog // victims are among those that wait
	return Volume{uint64(b.waiting() + b.retry.len()), bytes + uint64(b.pendingBytes+b.heldBytes+b.retryBytes)}
}

// of is what a writer has in hand.
func (d *transit) of(w *queue) (v Volume) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, has := range d.mu.chunks {
		if has.with == w {
			v = v.Plus(Volume{1, uint64(has.rec.Size)})
		}
	}
	return v
}

// valuableFirst orders the chunks that a writer has to write by their uses: the
// most often used first, but no chunk before the prefix it stands on, for it is of
// use only with all before it. Of equals the youngest goes first. Chunks in retry
// are among them.
func (s *flusher) valuableFirst(w *writer) {
	if w.missing().Chunks > 0 {
		w.probe()
	}
	list := s.takeAll(w)
	ranked := make([]rankedItem, len(list))
	for i, of := range list {
		e, _ := s.hot.Ledger().Find(of.rec.Key)
		ranked[i] = rankedItem{item: of, uses: e.Hits, age: len(list) - i}
	}
	rankItems(ranked)
	var left fifo[item]
	for _, r := range ranked {
		left.push(r.item)
	}
	w.giveBack(&left)
}

// takeAll takes away all that is to be written and that no worker has yet, and
// the items in retry.
func (s *flusher) takeAll(w *writer) (list []item) {
	_ = w.await(context.Background(), func() bool { // giveBack ends a compaction
		if w.mu.backlog.compacting {
			return false
		}
		list = w.mu.backlog.takeAll(w.mu.flushes.gen)
		return true
	})
	return list
}

// rankedItem is a chunk that is to be written, with its uses: how often it was
// used, and no more than what the chunk before it is worth.
type rankedItem struct {
	item
	uses uint8
	age  int // 1 is the youngest
}

// rankItems sorts by worth.
func rankItems(is []rankedItem) {
	slices.SortFunc(is, func(a, b rankedItem) int { return cmp.Compare(a.rec.Depth, b.rec.Depth) })
	uses := make(map[key.Key]uint8, len(is))
	for n := range is {
		i := &is[n]
		if before, ok := uses[key.Key{Space: i.rec.Key.Space, Hash: i.rec.Parent}]; ok {
			i.uses = min(i.uses, before)
		}
		uses[i.rec.Key] = i.uses
	}
	slices.SortFunc(is, func(a, b rankedItem) int {
		return cmp.Or(cmp.Compare(b.uses, a.uses), cmp.Compare(a.rec.Depth, b.rec.Depth), cmp.Compare(a.age, b.age))
	})
}
