package hint

import (
	"container/heap"
	"context"
	"sync/atomic"
	"time"
)

// leastRoom is for how many grants the heap keeps its room when most of them are over.
const leastRoom = 1 << 10

// deadlines is a heap of grants, the first to end on top. Each knows its place.
type deadlines []*grant

func (d deadlines) Len() int           { return len(d) }
func (d deadlines) Less(i, j int) bool { return d[i].until.Before(d[j].until) }
func (d deadlines) Swap(i, j int) {
	d[i], d[j] = d[j], d[i]
	d[i].at, d[j].at = i, j
}

func (d *deadlines) Push(g any) {
	g.(*grant).at = len(*d)
	*d = append(*d, g.(*grant))
}

func (d *deadlines) Pop() any {
	last := len(*d) - 1
	g := (*d)[last]
	(*d)[last] = nil
	*d = (*d)[:last]
	if room := cap(*d); room > leastRoom && last < room/4 {
		*d = append(make(deadlines, 0, room/2), *d...)
	}
	return g
}

// first is when the first one ends; zero for none.
func (d deadlines) first() time.Time {
	if len(d) == 0 {
		return time.Time{}
	}
	return d[0].until
}

// Expire ends the claims that are over, and returns when the next one is; zero for
// none.
func (t *Claims) Expire() time.Time {
	for {
		if next, more := t.expireSome(); !more {
			return next
		}
	}
}

// expireSome ends claims in one space, and reports whether there may be others.
func (t *Claims) expireSome() (next time.Time, more bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now()
	if next = t.mu.due.first(); next.IsZero() || next.After(now) {
		return next, false
	}
	space := t.mu.due[0].of.Space
	for range round {
		if len(t.mu.due) == 0 || t.mu.due[0].until.After(now) || t.mu.due[0].of.Space != space {
			break
		}
		g := t.mu.due[0]
		if g.of.until.After(now) { // its name was pinned again
			g.until = g.of.until
			heap.Fix(&t.mu.due, 0)
			continue
		}
		t.drop(g.of, g.hash)
	}
	t.flush(space)
	return time.Time{}, true
}

// Run ends claims in time until ctx ends.
func (t *Claims) Run(ctx context.Context) error {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		wait := time.Hour
		if next := t.Expire(); !next.IsZero() {
			wait = max(next.Sub(t.now()), 0)
		}
		timer.Reset(wait)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
		case <-t.wake:
		}
	}
}

// counts are of grants: a chunk that one claimant claims is one.
type counts struct{ given, over atomic.Uint64 }

// ClaimStats counts the claims.
type ClaimStats struct {
	Chunks      int64  `json:"chunks"`
	Bytes       int64  `json:"bytes"` // payload, as far as it is known
	Claimants   int64  `json:"claimants"`
	MemoryBytes int64  `json:"memory_bytes"`
	Given       uint64 `json:"given"`       // chunks that a claimant has retained
	OverBudget  uint64 `json:"over_budget"` // let go of because they were larger than expected
}

// Stats returns the present numbers.
func (t *Claims) Stats() ClaimStats {
	t.mu.Lock()
	defer t.mu.Unlock()
	return ClaimStats{
		Chunks: int64(len(t.mu.chunks)), Bytes: t.mu.bytes, Claimants: int64(len(t.mu.holders)), MemoryBytes: t.mu.memory,
		Given: t.count.given.Load(), OverBudget: t.count.over.Load(),
	}
}
