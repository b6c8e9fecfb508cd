package stack

import (
	"errors"
	"sync"
	"time"
)

// errBudget is a write that would wear the device more than is allowed.
var errBudget = errors.New("the daily write budget is spent")

// budgetBurst is how much of a day's budget may be saved up: enough for the
// bursts in which prompts come, too little to spend a day's in one night.
const budgetBurst = time.Hour

// budget is a token bucket of bytes. It begins full, also after a restart.
type budget struct {
	mu struct {
		sync.Mutex
		perDay int64   // 0 = unlimited
		left   float64 // below 0 after a payload larger than what was left
		at     time.Time
	}
}

func newBudget(perDay int64) *budget {
	b := new(budget)
	b.set(perDay)
	return b
}

// set changes the bytes a day; the bucket is full then, unless they are the
// same.
func (b *budget) set(perDay int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if perDay != b.mu.perDay {
		b.mu.perDay = perDay
		b.mu.left, b.mu.at = b.most(), time.Now()
	}
}

// most is what can be saved up. Called with the mutex held.
func (b *budget) most() float64 { return float64(b.mu.perDay) * budgetBurst.Hours() / 24 }

// take spends n bytes if anything is left, so that no payload is too large.
func (b *budget) take(n uint32) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mu.perDay == 0 {
		return true
	}
	now := time.Now()
	earned := float64(b.mu.perDay) * now.Sub(b.mu.at).Hours() / 24
	b.mu.left, b.mu.at = min(b.most(), b.mu.left+earned), now
	if b.mu.left <= 0 {
		return false
	}
	b.mu.left -= float64(n)
	return true
}

// giveBack undoes the take of a payload that was not written after all.
func (b *budget) giveBack(n uint32) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.left += float64(n)
}
