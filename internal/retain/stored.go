package retain

import (
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/key"
)

// Stored says that a tier has a chunk of so many bytes now, and gives it its rank in the
// ledger of that tier.
func (t *Table) Stored(k key.Key, bytes int64, in *ledger.Ledger) {
	if t.known.Load() == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	ch := t.mu.chunks[k]
	if ch == nil {
		return
	}
	if ch.bytes == 0 && !t.measured(k, ch, bytes) {
		return
	}
	if in != nil {
		ledger.Retain(in, k.Space, []key.Hash{k.Hash}, []ledger.Rank{ch.rank()})
	}
}

// measured notes how large a chunk is, and reports whether it is retained all the same:
// a user who would retain too much with it loses it.
func (t *Table) measured(k key.Key, ch *chunk, bytes int64) bool {
	ch.bytes = bytes
	t.mu.bytes += bytes
	seen := make(map[*user]bool, 1)
	for i := range ch.grants {
		if u := ch.grants[i].of.user; !seen[u] {
			seen[u] = true
			u.bytes += bytes
		}
	}
	for i := len(ch.grants) - 1; i >= 0; i-- {
		if h := ch.grants[i].of; h.user.bytes > t.mu.limits.UserBytes || t.mu.bytes > t.mu.limits.TotalBytes {
			t.count.over.Add(1)
			t.drop(h, k.Hash)
		}
	}
	t.flush(k.Space)
	return len(ch.grants) > 0
}
