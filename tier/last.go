package tier

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"github.com/kvstored/kvstored/key"
)

// Left is what a tier below DRAM was not given when the daemon ended.
type Left struct {
	Volume
	Err error // why; nil where the tier would not take it
}

// FlushLast is the flush of a daemon that ends: durable, into all tiers at once
// and until ctx ends, what is worth most first. No client may store any more. It
// returns what each tier is left without; a tier that has all is not named. What
// write mode selective does not write is not left.
func (s *Stack) FlushLast(ctx context.Context) map[Place]Left {
	errs := make([]error, len(s.writers))
	var flushes sync.WaitGroup
	for i, w := range s.writers {
		flushes.Go(func() {
			w.valuableFirst()
			errs[i] = w.flushTo(ctx, true)
		})
	}
	flushes.Wait()
	left := make(map[Place]Left)
	for i, w := range s.writers {
		if v := w.left(); v.Chunks > 0 || errs[i] != nil {
			left[w.place] = Left{v, errs[i]}
		}
	}
	return left
}

// left is what the tier lacks and would have taken.
func (w *writer) left() Volume {
	if w == w.stack.writers[0] && w.mode != WriteSelective {
		l := w.stack.hot.Ledger().Stats()
		return w.stack.departing.of(w).Plus(Volume{uint64(l.DirtyEntries), uint64(l.DirtyBytes)})
	}
	n := w.waiting() // victims among them
	bytes := w.stack.departing.of(w).Bytes
	w.mu.Lock()
	defer w.mu.Unlock()
	return Volume{uint64(n + w.mu.missed.len()), bytes + uint64(w.mu.behind+w.mu.held+w.mu.lacks)}
}

// of is what a writer has in hand.
func (d *departing) of(w *writer) (v Volume) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, has := range d.mu.chunks {
		if has.with == w {
			v = v.Plus(Volume{1, uint64(has.rec.Size)})
		}
	}
	return v
}

// valuableFirst orders the chunks to write by their worth: the most often used
// first, but no chunk before the prefix it stands on, for it is of use only with
// all before it. Of equals the youngest goes first. Missed chunks are among them.
func (w *writer) valuableFirst() {
	w.probe()
	list := w.takeAll()
	ranked := make([]rankedKey, len(list))
	for i, d := range list {
		e, _ := w.stack.hot.Ledger().Find(d.rec.Key)
		ranked[i] = rankedKey{dirtyKey: d, worth: e.Hits, age: len(list) - i}
	}
	rankKeys(ranked)
	var left fifo[dirtyKey]
	for _, r := range ranked {
		left.push(r.dirtyKey)
	}
	for !w.giveDirty(&left) {
	}
}

// rankedKey is a chunk that is to be written, with its worth: how often it was
// used, and no more than what the chunk before it is worth.
type rankedKey struct {
	dirtyKey
	worth uint8
	age   int // 1 is the youngest
}

// rankKeys sorts by worth.
func rankKeys(ks []rankedKey) {
	slices.SortFunc(ks, func(a, b rankedKey) int { return cmp.Compare(a.rec.Depth, b.rec.Depth) })
	worth := make(map[key.Key]uint8, len(ks))
	for i := range ks {
		k := &ks[i]
		if before, ok := worth[key.Key{Space: k.rec.Key.Space, Hash: k.rec.Parent}]; ok {
			k.worth = min(k.worth, before)
		}
		worth[k.rec.Key] = k.worth
	}
	slices.SortFunc(ks, func(a, b rankedKey) int {
		return cmp.Or(cmp.Compare(b.worth, a.worth), cmp.Compare(a.rec.Depth, b.rec.Depth), cmp.Compare(a.age, b.age))
	})
}

// takeAll takes away, as takeDirty does, all that is to be written and that no
// worker has yet, and what was missed.
func (w *writer) takeAll() (list []dirtyKey) {
	w.mu.Lock()
	for w.mu.sifting { // giveDirty ends that
		change := w.changed()
		w.mu.Unlock()
		<-change
		w.mu.Lock()
	}
	defer w.mu.Unlock()
	w.mu.sifting = true
	for w.mu.dirty.len() > 0 {
		list = append(list, w.mu.dirty.pop())
	}
	for w.mu.missed.len() > 0 {
		d := w.unmiss()
		d.gen = w.mu.gen
		w.mu.behind += int64(d.rec.Size)
		w.mu.open[d.gen]++
		list = append(list, d)
	}
	return list
}
