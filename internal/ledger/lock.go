package ledger

import (
	"sync"

	"github.com/kvstored/kvstored/internal/base"
	"github.com/kvstored/kvstored/policy"
)

// maxRound is how many entries one lock round handles at most. At some tens
// of nanoseconds each it keeps the lock for about 100 µs.
const maxRound = 4096

// locked is a book and the mutex that guards all of it, with the walks that
// take the mutex once a round.
type locked struct {
	mu   sync.Mutex
	book book
	wake base.Signal // of Released, after a round that has released something
}

// lock begins a lock round.
func (l *locked) lock() *book {
	l.mu.Lock()
	return &l.book
}

// unlock ends it, and wakes those who wait for room if it has let something go.
func (l *locked) unlock() {
	if !l.book.released {
		l.mu.Unlock()
		return
	}
	l.book.released = false
	wake := l.wake // told outside of the lock, which its waiters take next
	l.wake = base.Signal{}
	l.mu.Unlock()
	wake.Wake()
}

// round calls do in a lock round.
func (l *locked) round(do func(b *book)) {
	defer l.unlock()
	do(l.lock())
}

// rounds calls do for the parts of a list of n, from one place to another, maxRound at a
// time, each in a lock round of its own.
func (l *locked) rounds(n int, do func(b *book, from, to int)) {
	for from := 0; from < n; from += maxRound {
		l.round(func(b *book) { do(b, from, min(n, from+maxRound)) })
	}
}

// each calls do for all entries there are, in any life, round of them at a time with the lock
// held. Those that come meanwhile may be missing.
func (l *locked) each(round uint32, do func(b *book, id uint32, e *entry)) {
	for id, more := uint32(1), true; more; {
		l.round(func(b *book) {
			for end := min(id+round, b.entries.Len()); id < end; id++ {
				do(b, id, b.entries.At(id))
			}
			more = id < b.entries.Len()
		})
	}
}

// eachIn calls do, with the lock held, for all resident entries of a scope.
func (l *locked) eachIn(r uint32, do func(*book, policy.ID)) {
	l.each(handOverRound, func(b *book, id uint32, e *entry) {
		if e.life == resident && b.policies.has(r, e) {
			do(b, policy.ID(id))
		}
	})
}
