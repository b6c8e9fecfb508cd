package index

// tree is all that a shard knows: blocks in their chains, sets of holders and
// the names of blocks. One goroutine changes it; Find reads it without a lock.
type tree struct {
	blocks *blocks
	table  *table
	sets   *sets
	alias  *aliases

	partial uint8 // groups that are not full: what a worker has of them counts whatever it has before it
}

func newTree(seed [2]uint64, partial uint8) *tree {
	t := &tree{blocks: newBlocks(), sets: newSets(), partial: partial}
	t.table = newTable(seed, t.blocks.key)
	t.alias = newAliases(seed)
	return t
}

// warmed is how many keys warm takes together: more than memory serves at once.
const warmed = 16

// warm brings the blocks with these keys, where there are any, into the
// processor's cache. Most of the time of a change is waiting for memory; here the
// waits overlap.
func (t *tree) warm(keys []uint64) {
	var buckets [warmed]*bucket
	var tags [warmed]uint32
	for i, key := range keys {
		buckets[i], tags[i] = t.table.home(key)
	}
	for i := range keys {
		if n := buckets[i].first(tags[i]); n != 0 {
			t.blocks.at(n).key.Load()
		}
	}
}

// add makes a block below a parent.
func (t *tree) add(key uint64, parent, stamp uint32) uint32 {
	n := t.blocks.take()
	b := t.blocks.at(n) // its cover is empty
	b.key.Store(key)
	b.stamp.Store(stamp)
	b.own, b.child = empty, 0
	t.blocks.join(n, parent)
	t.table.add(key, n)
	return n
}

// drop removes a block that has no children.
func (t *tree) drop(n uint32) {
	b := t.blocks.at(n)
	t.table.remove(b.key.Load(), n)
	t.alias.dropAll(n)
	t.sets.release(b.own)
	t.sets.release(b.coverSet())
	b.own = empty
	t.blocks.leave(n)
	p := t.blocks.at(b.parent())
	if s := b.stamp.Load(); s > p.stamp.Load() {
		p.stamp.Store(s) // it was as warm as what stood on it
	}
	t.blocks.give(n)
}

// prune drops a block that no worker has and on which nothing stands, and those
// above it of which that then holds.
func (t *tree) prune(n uint32) {
	for n != root {
		b := t.blocks.at(n)
		if b.own != empty || b.child != 0 {
			return
		}
		parent := b.parent()
		t.drop(n)
		n = parent
	}
}

// level is how far a worker reaches for a block and all before it.
func (t *tree) level(n uint32, c column) int {
	if n == root || t.partial>>c.group()&1 != 0 {
		return 0
	}
	return t.sets.get(t.blocks.at(n).coverSet(), c).level()
}

// set puts a column's mask of a block's own set, and all that follows from it.
// above is the level of the block's parent.
func (t *tree) set(n uint32, c column, m mask, above int) {
	b := t.blocks.at(n)
	old := b.own
	b.own = t.sets.with(old, c, m)
	t.sets.release(old)
	if t.cover(n, c, above) && b.child != 0 && t.partial>>c.group()&1 == 0 {
		t.spread(n, c)
	}
}

// touch notes that a block was used.
func (t *tree) touch(n, now uint32) {
	if b := t.blocks.at(n); n != root && b.stamp.Load() < now {
		b.stamp.Store(now)
	}
}

// cover computes a block's level anew, given that of its parent. It reports
// whether it has changed.
func (t *tree) cover(n uint32, c column, above int) bool {
	b := t.blocks.at(n)
	level := max(above, t.sets.get(b.own, c).level())
	old := b.coverSet()
	if t.sets.get(old, c).level() == level {
		return false
	}
	b.setCover(t.sets.with(old, c, cover(level)))
	t.sets.release(old)
	return true
}

// spread carries a changed level to the blocks below, as far as it changes
// theirs: a hole takes the worker out of all that stands on it, and the end of
// the hole puts it back. Each block is visited once, without a stack.
func (t *tree) spread(top uint32, c column) {
	n, down := top, true
	for {
		b := t.blocks.at(n)
		if down && b.child != 0 {
			n = b.child
		} else if n == top {
			return
		} else if next := t.blocks.next(n); next != 0 {
			n = next
		} else {
			n, down = b.parent(), false
			continue
		}
		down = t.cover(n, c, t.level(t.blocks.at(n).parent(), c))
	}
}

// repacked returns a copy without the room of removed blocks.
func (t *tree) repacked() *tree {
	to := newTree(t.table.seed, t.partial)
	t.sets.forget()
	t.copyTo(to)
	return to
}

// copyTo adds all blocks to an empty tree, parents first.
func (t *tree) copyTo(to *tree) {
	sets := make(map[setID]setID) // of this tree, to the other's
	moved := func(id setID) setID {
		if !id.stored() {
			return id
		}
		if _, known := sets[id]; !known {
			to.sets.scratch = t.sets.all(to.sets.scratch[:0], id)
			sets[id] = to.sets.intern(to.sets.scratch)
		} else {
			to.sets.retain(sets[id])
		}
		return sets[id]
	}
	chain := []uint32{root} // the numbers in to, of the way to the last block
	t.walk(func(n uint32, up int) {
		b := t.blocks.at(n)
		chain = chain[:len(chain)-up]
		into := to.add(b.key.Load(), chain[len(chain)-1], b.stamp.Load())
		to.blocks.at(into).own = moved(b.own)
		to.blocks.at(into).setCover(moved(b.coverSet()))
		t.alias.each(n, func(a alias) { to.alias.add(a.hash, a.scheme, into) })
		chain = append(chain, into)
	})
}

// walk visits all blocks, parents first. up is how many steps the way to the
// block before is shortened before this one is added to it.
func (t *tree) walk(visit func(n uint32, up int)) {
	up, n := 0, t.blocks.at(root).child
	for n != root {
		visit(n, up)
		b := t.blocks.at(n)
		if b.child != 0 {
			n, up = b.child, 0
			continue
		}
		up = 1
		next := t.blocks.next(n)
		for next == 0 && b.parent() != root {
			n, up = b.parent(), up+1
			b, next = t.blocks.at(n), t.blocks.next(n)
		}
		n = next
	}
}

// bytes is the memory of the tree; liveBytes that of its blocks, sets and names.
func (t *tree) bytes() int64 {
	return t.blocks.bytes() + t.table.bytes() + t.sets.bytes() + t.alias.bytes()
}

func (t *tree) liveBytes() int64 {
	return t.blocks.liveBytes() + int64(t.blocks.count)*tableBytes + t.sets.liveBytes() + t.alias.liveBytes()
}
