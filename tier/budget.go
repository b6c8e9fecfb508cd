package tier

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
	perDay int64 // 0 = unlimited
	mu     struct {
		sync.Mutex
		left float64 // below 0 after a payload larger than what was left
		at   time.Time
	}
}

func newBudget(perDay int64) *budget {
	b := &budget{perDay: perDay}
	b.mu.left, b.mu.at = b.most(), time.Now()
	return b
}

func (b *budget) most() float64 { return float64(b.perDay) * budgetBurst.Hours() / 24 }

// take spends n bytes if anything is left, so that no payload is too large.
func (b *budget) take(n uint32) bool {
	if b.perDay == 0 {
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	earned := float64(b.perDay) * now.Sub(b.mu.at).Hours() / 24
	b.mu.left, b.mu.at = min(b.most(), b.mu.left+earned), now
	if b.mu.left <= 0 {
		return false
	}
	b.mu.left -= float64(n)
	return true
}

// giveBack undoes a take of what was not written after all.
func (b *budget) giveBack(n uint32) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.left += float64(n)
}
