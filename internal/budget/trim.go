package budget

import (
	"context"
	"runtime/debug"
	"time"
)

const (
	// trimBytes is how much must have become free to be given back at once. Less
	// is given back by the runtime, within some minutes.
	trimBytes = 8 << 20
	// trimPause is from then to giving it back, and between two times: a client
	// that goes on would need it again.
	trimPause = 2 * time.Second
)

// Run gives memory back to the system after connections have let go of much of
// it, until ctx ends. The runtime would keep it until the next collection, which
// may be minutes away when nothing is allocated.
func (b *Budget) Run(ctx context.Context) error {
	if b == nil {
		return nil
	}
	for {
		select {
		case <-b.fell:
		case <-ctx.Done():
			return nil
		}
		select {
		case <-time.After(trimPause):
		case <-ctx.Done():
			return nil
		}
		if b.fallen() {
			debug.FreeOSMemory()
		}
	}
}

// fallen reports whether half of the most that was used is free, and much, and
// begins to look anew.
func (b *Budget) fallen() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	free := b.mu.peak - b.mu.used
	b.mu.peak = b.mu.used
	return free >= trimBytes && free >= b.mu.used
}
