package tier

import "github.com/kvstored/kvstored/key"

// siftSlack is how long the list of dirty chunks may be whatever becomes of
// them.
const siftSlack = 4096

// sift keeps the list of dirty chunks from outgrowing what is there, when
// chunks are evicted or deleted, and perhaps stored again, without ever having
// come to the front: whenever it is twice as long as it was after the last
// time, a worker takes it away, without the mutex, and leaves out what is gone.
func (w *writer) sift() {
	old := w.takeDirty()
	if old.len() == 0 {
		return
	}
	var left fifo[dirtyKey]
	var gone []dirtyKey
	seen := make(map[key.Key]struct{})
	for old.len() > 0 {
		d := old.pop()
		_, twice := seen[d.rec.Key]
		if !twice && w.isThere(d.rec.Key) {
			seen[d.rec.Key] = struct{}{}
			left.push(d)
			continue
		}
		if !twice && w.nearer != nil && w.mode != WriteBack && w.lacks(d.rec.Key) {
			w.count.drop(DropGone, d.rec.Size)
		}
		if gone = append(gone, d); len(gone) == settleBatch {
			w.forgetDirty(gone)
			gone = gone[:0]
		}
	}
	w.forgetDirty(gone)
	for !w.giveDirty(&left) {
	}
}

// isThere reports whether a chunk is in DRAM, or in the nearer tier or on its
// way to that.
func (w *writer) isThere(k key.Key) bool {
	return w.stack.hot.Has(k) || w.nearer != nil && (w.nearer.Has(k) || w.before.isAt(k))
}

// takeDirty takes the list away if it is long; only until giveDirty has given
// it back does nobody take anything from it.
func (w *writer) takeDirty() (list fifo[dirtyKey]) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.sifting || w.mu.dirty.len() < w.mu.sift {
		return list
	}
	w.mu.sifting = true
	list, w.mu.dirty = w.mu.dirty, list
	return list
}

func (w *writer) forgetDirty(gone []dirtyKey) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, d := range gone {
		delete(w.mu.queued, d.rec.Key)
		w.mu.behind -= int64(d.rec.Size)
		w.finish(d.gen)
	}
}

// giveDirty moves what has been added meanwhile behind what is left, and
// reports whether that was all; if so what is left is the list again.
func (w *writer) giveDirty(left *fifo[dirtyKey]) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for range settleBatch {
		if w.mu.dirty.len() == 0 {
			w.mu.dirty, w.mu.sifting = *left, false
			w.mu.sift = 2*left.len() + siftSlack
			w.more()
			w.wake()
			return true
		}
		left.push(w.mu.dirty.pop())
	}
	return false
}
