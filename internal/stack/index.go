package stack

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/kvstored/kvstored/internal/radix"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

// indexBatch bounds how many entries are looked at under one hold of the index's
// lock (about 100 us).
const indexBatch = 256

// index says of every known chunk which tiers have it. It follows the tiers:
// each is the truth about its entries, and after a change sync asks it again
// under the index's lock, so that the last sync leaves the truth behind, in any
// order of changes and syncs.
//
// Each method takes the lock once, but for sync and clear, which take it once
// for indexBatch keys.
type index struct {
	levels *levels
	// holds asks a bounded tier whether it has k. Memory only.
	holds        func(p tier.Place, k key.Key) bool
	inconsistent atomic.Uint64 // chunks that contradicted what was known

	mu struct {
		sync.Mutex
		tree *radix.Tree
	}
}

// where is the tiers that are known to have k.
func (x *index) where(k key.Key) tier.Set {
	x.mu.Lock()
	defer x.mu.Unlock()
	at, _ := x.mu.tree.Get(k.Space, k.Hash)
	return tier.Set(at)
}

// has reports whether p is known to have k.
func (x *index) has(p tier.Place, k key.Key) bool { return x.where(k).Has(p) }

// count is how many of ks, indexBatch at most, some tier has.
func (x *index) count(ks []key.Key) (n int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, k := range ks {
		if at, _ := x.mu.tree.Get(k.Space, k.Hash); at != 0 {
			n++
		}
	}
	return n
}

// match copies where chunks from..to of c are into at, as far as the way to them
// is known, and returns how many chunks of c are; those before from are.
func (x *index) match(c *key.Chain, from, to int, at []uint8) (known int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.mu.tree.MatchOn(c.Space, c.Hashes[:to], from, c.Chained, at)
}

// matchAlone copies where chunks from..to of c are into at, whether or not
// the way to them is known.
func (x *index) matchAlone(c *key.Chain, from, to int, at []uint8) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for i := from; i < to; i++ {
		at[i], _ = x.mu.tree.Get(c.Space, c.Hashes[i])
	}
}

// matchEach is matchAlone, and ErrInconsistent where a chunk is known below
// another chunk than in c.
func (x *index) matchEach(c *key.Chain, from, to int, at []uint8) error {
	return x.each(from, to, func(i int) error {
		at[i], _ = x.mu.tree.Get(c.Space, c.Hashes[i])
		if up, ok := x.mu.tree.Parent(c.Space, c.Hashes[i]); ok && at[i] != 0 && up != c.Parent(i) {
			x.inconsistent.Add(1)
			return fmt.Errorf("reserve chunk %d: %w: it is known below another chunk", i, tier.ErrInconsistent)
		}
		return nil
	})
}

// check says whether chunks from..to of c, and those before, contradict the
// chains that are known.
func (x *index) check(c *key.Chain, from, to int) error {
	if c.Alone {
		return x.each(from, to, func(i int) error { return x.mu.tree.Check(c.Space, c.Hashes[i:i+1]) })
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.mu.tree.Check(c.Space, c.Hashes[:to])
}

// add notes that p has chunks from..to of c.
func (x *index) add(c *key.Chain, from, to int, p tier.Place) error {
	if c.Alone {
		return x.each(from, to, func(i int) error { return x.addOn(c, c.Hashes[i:i+1], 0, p) })
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.addOn(c, c.Hashes[:to], from, p)
}

// addOn is add for a chain of hashes, with the lock held. DRAM is synced anyway.
func (x *index) addOn(c *key.Chain, hashes []key.Hash, from int, p tier.Place) error {
	if err := x.mu.tree.Add(c.Space, hashes, from, uint8(tier.Of(p))); err != nil || p == tier.CPU {
		return err
	}
	for _, h := range hashes[from:] {
		x.levels.told(p, key.Key{Space: c.Space, Hash: h}, tier.Of(p))
	}
	return nil
}

// each calls fn for from..to with the lock held, as long as there is no error. It
// lets others have the lock in between.
func (x *index) each(from, to int, fn func(i int) error) error {
	for from < to {
		end := min(from+indexBatch, to)
		if err := x.some(from, end, fn); err != nil {
			return err
		}
		from = end
	}
	return nil
}

func (x *index) some(from, to int, fn func(i int) error) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	for i := from; i < to; i++ {
		if err := fn(i); err != nil {
			return err
		}
	}
	return nil
}

// sync brings the index's bit of p for each key in line with what the tier
// holds now.
func (x *index) sync(p tier.Place, ks ...key.Key) {
	_ = x.each(0, len(ks), func(i int) error { // fn has no error
		x.set(ks[i], p, x.holds(p, ks[i]))
		return nil
	})
}

// clear notes that a tier turned out not to have ks; one with bounds is asked.
func (x *index) clear(p tier.Place, ks ...key.Key) {
	if x.levels.at[p].Resident != nil {
		x.sync(p, ks...)
		return
	}
	_ = x.each(0, len(ks), func(i int) error { // fn has no error
		x.set(ks[i], p, false)
		return nil
	})
}

// insert is sync for entries, indexBatch at most, that the index may not know
// (any more). It returns those that contradict the known chains, which no lookup
// will find.
func (x *index) insert(p tier.Place, recs []tier.Record) (lost []key.Key) {
	bounded := x.levels.at[p].Resident != nil
	x.mu.Lock()
	defer x.mu.Unlock()
	for i := range recs {
		r := &recs[i]
		if bounded && !x.holds(p, r.Key) {
			x.set(r.Key, p, false)
			continue
		}
		if err := x.mu.tree.Insert(r.Key.Space, r.Parent, r.Key.Hash, uint8(tier.Of(p))); err != nil {
			lost = append(lost, r.Key)
			continue
		}
		at, _ := x.mu.tree.Get(r.Key.Space, r.Key.Hash)
		x.levels.told(p, r.Key, tier.Set(at))
	}
	x.inconsistent.Add(uint64(len(lost)))
	return lost
}

// set notes whether p has k, if the index knows k; called with the lock held.
func (x *index) set(k key.Key, p tier.Place, has bool) {
	set, clear := uint8(0), uint8(tier.Of(p))
	if has {
		set, clear = clear, set
	}
	at, _ := x.mu.tree.Set(k.Space, k.Hash, set, clear)
	x.levels.told(p, k, tier.Set(at))
}

// keys lists what some tier of a set has of a space. It takes some 20 ns a key.
func (x *index) keys(id key.SpaceID, in tier.Set) (ks []key.Key) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.mu.tree.Walk(id, func(hash, _ key.Hash, _ int, at radix.Loc) bool {
		if tier.Set(at)&in != 0 {
			ks = append(ks, key.Key{Space: id, Hash: hash})
		}
		return true
	})
	return ks
}

// spaces lists the spaces of which anything is known.
func (x *index) spaces() (ids []key.SpaceID) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.mu.tree.Spaces(func(id key.Hash) bool {
		ids = append(ids, id)
		return true
	})
	return ids
}

// census counts the chunks of some spaces; next is where it goes on, or 0.
func (x *index) census(from int, chunks map[key.SpaceID]int) (next int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.mu.tree.Census(from, indexBatch, func(id key.Hash, n int) {
		if n > 0 {
			chunks[id] = n
		}
	})
}

// stats is what the tree says of itself.
func (x *index) stats() radix.Stats {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.mu.tree.Stats()
}
