package store

import (
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/kvstored/kvstored/internal/explain"
	"github.com/kvstored/kvstored/internal/index"
	"github.com/kvstored/kvstored/internal/writeback"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

// indexBatch bounds how many entries are looked at under one hold of the index's
// lock (about 100 us).
const indexBatch = 256

// tierIndex says of every known chunk which tiers have it. It follows the tiers: each is the truth
// about its entries, and after a change sync asks it again under the index's lock, so that the
// last sync leaves the truth behind, in any order of changes and syncs.
//
// Each method takes the lock once, but for sync and clear, which take it once for indexBatch keys.
type tierIndex struct {
	levels       *levels
	writers      *writeback.Writers
	retainer     Retainer      // nil: nothing is retained
	inconsistent atomic.Uint64 // claims about the parents of chunks that contradicted earlier ones
	journal      *journal      // nil: no events
	absences     *absences
	groups       groupKinds

	waiting atomic.Int32 // in lock
	mu      struct {
		sync.Mutex
		tree   *index.Tree
		points *index.ResumePoints // of hybrid models
		bits   groupBits
	}
}

func newIndex(o *Options, ls *levels, absences *absences, chunks int) *tierIndex {
	x := &tierIndex{levels: ls, absences: absences}
	x.mu.tree, x.mu.points = index.NewTree(), index.NewResumePoints(chunks)
	x.journal = newJournal(o, x.mu.tree)
	return x
}

// holds asks a bounded tier whether it has k; of DRAM also the chunks in transit count.
// Memory only.
func (x *tierIndex) holds(p tier.Place, k key.Key) bool {
	if p == tier.CPU {
		return x.writers.Has(k)
	}
	return x.levels.at[p].Has(k)
}

// lock takes the lock.
func (x *tierIndex) lock() {
	if x.mu.TryLock() {
		return
	}
	x.waiting.Add(1)
	x.mu.Lock()
	x.waiting.Add(-1)
}

// pass gives the lock back after it was held for long, to one that waits for it: a
// sync.Mutex alone leaves it for a millisecond to a loop that takes it again at once.
func (x *tierIndex) pass() {
	x.mu.Unlock()
	if x.waiting.Load() > 0 {
		runtime.Gosched()
	}
}

// Where is the tiers that are known to have k.
func (x *tierIndex) Where(k key.Key) tier.Set {
	x.lock()
	defer x.mu.Unlock()
	at, _ := x.mu.tree.Get(k.Space, k.Hash)
	return tier.Set(at)
}

// count is how many of ks, indexBatch at most, some tier has.
func (x *tierIndex) count(ks []key.Key) (n int) {
	x.lock()
	defer x.pass()
	for _, k := range ks {
		if at, _ := x.mu.tree.Get(k.Space, k.Hash); at != 0 {
			n++
		}
	}
	return n
}

// match copies where chunks from..to of c are into at, as far as they are known one
// after the other, and returns how many chunks of c are; those before from are. more
// says that it ended early for the sake of others.
//
// The tree finds them while c goes on in it as it did before. A chunk that is known
// behind another one than in c is looked up by itself: which chunk follows which may
// be only an engine's claim. So may be what c skips, of which nothing need be known.
// Unless marks is nil the marks of the chunks are copied there.
func (x *tierIndex) match(c *key.Chain, from, to int, at, marks []uint8) (known int, more bool) {
	x.lock()
	if to-from > indexBatch {
		defer x.pass()
	} else {
		defer x.mu.Unlock()
	}
	known = from
	for range indexBatch {
		if known = x.mu.tree.Match(c.Space, c.Hashes[:to], known, at, marks); known == to {
			return known, false
		}
		loc, ok := x.mu.tree.Get(c.Space, c.Hashes[known])
		if !ok && known >= c.Skip {
			return known, false
		}
		if at[known] = loc; marks != nil {
			marks[known] = index.Marks(x.mu.tree, c.Space, c.Hashes[known])
		}
		known++
	}
	return known, known < to
}

// matchEach copies where chunks from..to of c are into at, whether or not
// the way to them is known.
func (x *tierIndex) matchEach(c *key.Chain, from, to int, at []uint8) {
	x.each(from, to, func(i int) { at[i], _ = x.mu.tree.Get(c.Space, c.Hashes[i]) })
}

// add notes that p has chunks from..to of c, as far as DRAM still has them then. Where c
// contradicts the chains that are known each chunk keeps the place that it was given
// first; see index.Tree.Claim.
func (x *tierIndex) add(c *key.Chain, from, to int, p tier.Place) {
	for ; from < to; from = min(from+indexBatch, to) {
		x.addSome(c, from, min(from+indexBatch, to), p)
	}
}

func (x *tierIndex) addSome(c *key.Chain, from, to int, p tier.Place) {
	var was [indexBatch]tier.Set
	x.lock()
	defer x.pass()
	for i := from; i < to; i++ {
		was[i-from] = x.journal.at(c.Key(i))
	}
	chained := !c.Alone && x.mu.tree.Add(c.Space, c.Hashes[:to], from, uint8(tier.Of(p))) == nil
	for i := from; i < to; i++ {
		k := c.Key(i)
		if !chained && !x.mu.tree.Claim(k.Space, c.Parent(i), k.Hash, uint8(tier.Of(p))) && !c.Alone {
			x.inconsistent.Add(1)
		}
		x.journal.claimed(p, k, c.Tokens[i], was[i-from])
		if p == tier.CPU && !x.holds(p, k) { // evicted since it was published
			x.set(k, p, false, explain.Evicted)
			continue
		}
		at, _ := x.mu.tree.Get(k.Space, k.Hash)
		x.told(p, k, tier.Set(at))
	}
}

// told follows up on a change of what p has: the index has k at `at` now. It is called
// with the lock held, which makes the last call leave the truth behind.
func (x *tierIndex) told(p tier.Place, k key.Key, at tier.Set) {
	x.levels.told(p, k, at)
	x.mu.bits.changed(x.mu.tree, k, at != 0)
	if x.mu.points.Knows(k.Space) {
		x.levels.needed(x.mu.points.Changed(k, at != 0))
	}
}

// each calls fn for from..to with the lock held, and lets others have it in between.
func (x *tierIndex) each(from, to int, fn func(i int)) {
	for from < to {
		end := min(from+indexBatch, to)
		x.some(from, end, fn)
		from = end
	}
}

func (x *tierIndex) some(from, to int, fn func(i int)) {
	x.lock()
	defer x.pass()
	for i := from; i < to; i++ {
		fn(i)
	}
}

// Sync brings the index's bit of p for each key in line with what the tier
// holds now. A chunk that it does not hold has left for the reason.
func (x *tierIndex) Sync(p tier.Place, why explain.Reason, ks ...key.Key) {
	x.each(0, len(ks), func(i int) { x.set(ks[i], p, x.holds(p, ks[i]), why) })
}

// Clear notes that a tier turned out not to have ks; one with bounds is asked.
func (x *tierIndex) Clear(p tier.Place, why explain.Reason, ks ...key.Key) {
	if x.levels.at[p].Resident != nil {
		x.Sync(p, why, ks...)
		return
	}
	x.each(0, len(ks), func(i int) { x.set(ks[i], p, false, why) })
}

// Insert is Sync for entries, indexBatch at most, that the index may not know
// (any more).
func (x *tierIndex) Insert(p tier.Place, recs []tier.Record) {
	x.insertAll(p, recs)
	for i := range recs {
		x.retained(p, recs[i].Key, recs[i].Size)
	}
}

func (x *tierIndex) insertAll(p tier.Place, recs []tier.Record) {
	bounded := x.levels.at[p].Resident != nil
	x.lock()
	defer x.pass()
	for i := range recs {
		r := &recs[i]
		if bounded && !x.holds(p, r.Key) {
			x.set(r.Key, p, false, explain.Evicted)
			continue
		}
		was := x.journal.at(r.Key)
		if !x.mu.tree.Claim(r.Key.Space, r.Parent, r.Key.Hash, uint8(tier.Of(p))) {
			x.inconsistent.Add(1)
		}
		x.journal.claimed(p, r.Key, r.Tokens, was)
		at, _ := x.mu.tree.Get(r.Key.Space, r.Key.Hash)
		x.told(p, r.Key, tier.Set(at))
	}
}

// set notes whether p has k, if the index knows k, and why it left where it is in no
// tier any more; called with the lock held.
func (x *tierIndex) set(k key.Key, p tier.Place, has bool, why explain.Reason) {
	set, clear := uint8(0), uint8(tier.Of(p))
	if has {
		set, clear = clear, set
	}
	was, _ := x.mu.tree.Get(k.Space, k.Hash)
	at, _ := x.mu.tree.Set(k.Space, k.Hash, set, clear)
	if tier.Set(was).Has(p) && at == 0 {
		x.absences.left(p, k, why)
	}
	x.journal.changed(k, p, tier.Set(was), tier.Set(at))
	x.told(p, k, tier.Set(at))
}

// keys lists what some tier of a set has of a space. It takes some 20 ns a key.
func (x *tierIndex) keys(id key.SpaceID, in tier.Set) (ks []key.Key) {
	x.lock()
	defer x.mu.Unlock()
	x.mu.tree.Walk(id, func(hash, _ key.Hash, _ int, at index.Loc) bool {
		if tier.Set(at)&in != 0 {
			ks = append(ks, key.Key{Space: id, Hash: hash})
		}
		return true
	})
	return ks
}

// spacesWith lists at most so many spaces that have a chunk with the hash of k in
// some tier, of the first mostElsewhere that come to hand, but for k's own.
func (x *tierIndex) spacesWith(k key.Key, most int) (ids []key.SpaceID) {
	x.lock()
	defer x.mu.Unlock()
	left := mostElsewhere
	x.mu.tree.Spaces(func(id key.Hash) bool {
		if at, _ := x.mu.tree.Get(id, k.Hash); at != 0 && id != k.Space {
			ids = append(ids, id)
		}
		left--
		return left > 0 && len(ids) < most
	})
	return ids
}

// spaces lists the spaces of which anything is known.
func (x *tierIndex) spaces() (ids []key.SpaceID) {
	x.lock()
	defer x.mu.Unlock()
	x.mu.tree.Spaces(func(id key.Hash) bool {
		ids = append(ids, id)
		return true
	})
	return ids
}

// census counts the chunks of some spaces; next is where it goes on, or 0.
func (x *tierIndex) census(from int, chunks map[key.SpaceID]int) (next int) {
	x.lock()
	defer x.mu.Unlock()
	return x.mu.tree.Census(from, indexBatch, func(id key.Hash, n int) {
		if n > 0 {
			chunks[id] = n
		}
	})
}

// stats is what the tree and the table of resume points say of themselves.
func (x *tierIndex) stats() (index.TreeStats, index.ResumePointStats) {
	x.lock()
	defer x.mu.Unlock()
	return x.mu.tree.Stats(), x.mu.points.Stats()
}
