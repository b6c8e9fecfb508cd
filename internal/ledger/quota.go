package ledger

import (
	"errors"
	"fmt"

	"github.com/kvstored/kvstored/key"
)

// ErrOverQuota refuses a chunk that alone is larger than what its space may
// occupy.
var ErrOverQuota = errors.New("over quota")

// Quota is what holds for a group of spaces.
type Quota struct {
	Bytes int64 // that they may occupy
}

// QuotaStats is a snapshot of one quota.
type QuotaStats struct {
	Match        string `json:"match"` // for who names it: the ledger leaves it empty
	QuotaBytes   int64  `json:"quota_bytes"`
	UsedBytes    int64  `json:"used_bytes"` // occupied by the spaces under it; above the quota until they have evicted
	Evictions    uint64 `json:"evictions"`  // chunks that went because their own space was over it
	EvictedBytes uint64 `json:"evicted_bytes"`
	Refused      uint64 `json:"refused"` // chunks that had no room under it
}

// Quotas returns the present sums, in the order of Options.
func (l *Ledger) Quotas() []QuotaStats {
	b := l.mu.lock()
	defer l.mu.unlock()
	var out []QuotaStats
	for _, r := range b.policies.scopes[firstQuota:] {
		out = append(out, r.quota)
	}
	return out
}

// admits refuses what no eviction would make room for.
func (p *policies) admits(id key.SpaceID, n int64) error {
	if len(p.table.spaces.quotas) == 0 {
		return nil
	}
	r := p.table.spaces.quotas[id]
	if q := &p.scopes[r].quota; r != 0 && n > q.QuotaBytes {
		q.Refused++
		return fmt.Errorf("ledger: a chunk of %d bytes, and its space may have %d: %w", n, q.QuotaBytes, ErrOverQuota)
	}
	return nil
}

// SpaceBytes is what the entries of a space occupy, those that are being filled
// included, those that are leaving not.
func (l *Ledger) SpaceBytes(id key.SpaceID) int64 {
	b := l.mu.lock()
	defer l.mu.unlock()
	return b.spaces.slots.At(b.spaces.find(id)).bytes // of no space: none
}

// occupy counts n bytes more, or less, of an entry.
func (b *book) occupy(e *entry, n int64) {
	b.count.UsedBytes += n
	b.occupySpace(e, n)
}

// leave counts an entry that is gone and not held as leaving. Its space has room in its
// place at once: until Free, another fill would evict one more for it, or be refused.
func (b *book) leave(e *entry) {
	b.count.LeavingBytes += b.bytes(e)
	b.occupySpace(e, -b.bytes(e))
}

// occupySpace counts them under its space alone.
func (b *book) occupySpace(e *entry, n int64) {
	sp := b.spaces.slots.At(e.space)
	sp.bytes += n
	if sp.quota != 0 {
		b.policies.scopes[sp.quota].quota.UsedBytes += n
	}
}

// EvictOwn takes out a victim among the entries under the quota that the
// entry id, which the caller fills, is under; safely as EvictSafely does. ok is
// false, without an error, if the quota is kept. ErrOverQuota says that everything
// under the quota is protected; the caller aborts, which counts as refused. ErrBusy
// says that what could go would be lost.
func (l *Ledger) EvictOwn(id ID, safely bool) (v Entry, ok bool, err error) {
	v, ok = l.evictFirst(func(b *book, works mark) (v Entry, ok bool) {
		r := b.spaces.slots.At(b.entries.At(uint32(id)).space).quota
		if r == everything || !b.policies.exceeded(r) {
			return v, false
		}
		v, ok = b.evictUnder(r, works, safely)
		switch {
		case ok:
		case v.ID != 0:
			err = ErrBusy
		case b.order.stale > 0: // no other round follows
			b.policies.scopes[r].quota.Refused++
			err = ErrOverQuota
		}
		return v, ok
	})
	return v, ok, err
}

// EvictOver takes out a victim of any quota that is exceeded, as EvictSafely does;
// false if none is, or its entries are all protected, or would be lost.
func (l *Ledger) EvictOver() (Entry, bool) {
	return l.evictFirst(func(b *book, works mark) (Entry, bool) {
		for r := range b.policies.scopes[firstQuota:] {
			if r := uint32(r + firstQuota); b.policies.exceeded(r) {
				if v, ok := b.evictUnder(r, works, true); ok {
					return v, true
				}
			}
		}
		return Entry{}, false
	})
}

// OverQuota reports whether any quota is exceeded.
func (l *Ledger) OverQuota() bool {
	b := l.mu.lock()
	defer l.mu.unlock()
	for r := range b.policies.scopes[firstQuota:] {
		if b.policies.exceeded(uint32(r + firstQuota)) {
			return true
		}
	}
	return false
}

func (p *policies) exceeded(r uint32) bool {
	q := &p.scopes[r].quota
	return q.UsedBytes > q.QuotaBytes && !p.changingQuotas
}

func (b *book) evictUnder(r uint32, works mark, safely bool) (Entry, bool) {
	v, ok := b.evict(r, works, safely)
	if ok {
		q := &b.policies.scopes[r].quota
		q.Evictions++
		q.EvictedBytes += uint64(b.sizeOf(v.Size))
	}
	return v, ok
}
