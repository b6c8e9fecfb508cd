package retain

import (
	"container/heap"
	"maps"
	"slices"

	"github.com/kvstored/kvstored/internal/lean"
	"github.com/kvstored/kvstored/key"
)

// Release ends what a claimant claims of some chunks, of all for nil, and returns how
// many those were.
func (t *Table) Release(c Claimant, hs []key.Hash) (n int) {
	if hs == nil {
		hs = t.claimed(c)
	}
	for part := range slices.Chunk(hs, round) {
		n += t.release(c, part)
	}
	return n
}

// claimed is the chunks that a claimant retains.
func (t *Table) claimed(c Claimant) []key.Hash {
	t.mu.Lock()
	defer t.mu.Unlock()
	if h := t.mu.holders[c]; h != nil {
		return slices.Collect(maps.Keys(h.chunks))
	}
	return nil
}

func (t *Table) release(c Claimant, hs []key.Hash) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	h := t.mu.holders[c]
	if h == nil {
		return 0
	}
	before := len(h.chunks)
	for _, hash := range hs {
		t.drop(h, hash)
	}
	t.flush(c.Space)
	return before - len(h.chunks)
}

// drop ends the grant of a claimant on a chunk, and notes the rank that is left.
func (t *Table) drop(h *holder, hash key.Hash) {
	k := key.Key{Space: h.Space, Hash: hash}
	ch := t.mu.chunks[k]
	g := ch.of(h)
	if g == nil {
		return
	}
	i := slices.Index(ch.grants, g)
	ch.grants = slices.Delete(ch.grants, i, i+1)
	heap.Remove(&t.mu.due, g.at)
	delete(h.chunks, hash)
	if !ch.has(h.user) {
		h.user.bytes -= ch.bytes
	}
	t.spend(h, -grantBytes)
	h.user.memory -= chunkBytes
	t.note(h.Space, hash, ch)
	if len(ch.grants) == 0 {
		t.mu.bytes -= ch.bytes
		t.mu.memory -= chunkBytes
		lean.Delete(&t.mu.chunks, k, &t.mu.peak)
		t.known.Add(-1)
	}
	if len(h.chunks) == 0 {
		t.forget(h)
	}
}

// forget ends a claimant that retains nothing.
func (t *Table) forget(h *holder) {
	t.spend(h, -holderBytes-int64(len(h.Name)))
	delete(t.mu.holders, h.Claimant)
	if h.user.holders--; h.user.holders == 0 {
		delete(t.mu.users, h.UID)
	}
}
