package disk

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

// fills are the Puts under way: one of a key at a time.
type fills struct {
	ledger *ledger.Ledger

	mu struct {
		sync.Mutex
		ended map[key.Key]chan struct{} // closed when the Put of a key has ended
	}
}

// begin makes the caller the filler of e's key (id), or returns a channel
// that is closed when the Put that is has ended, or neither: it is resident.
func (f *fills) begin(e tier.Entry) (id ledger.ID, others <-chan struct{}, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	id, state, err := f.ledger.Begin(ledger.Daemon, ledger.IO, e.Key, e.Parent, e.Size)
	switch {
	case err != nil || state == ledger.Resident:
		return 0, nil, tier.Refusal(err)
	case state == ledger.Filling:
		return 0, f.mu.ended[e.Key], nil
	}
	if f.mu.ended == nil {
		f.mu.ended = make(map[key.Key]chan struct{})
	}
	f.mu.ended[e.Key] = make(chan struct{})
	return id, nil, nil
}

// end runs fn, which publishes or aborts k in the ledger, and wakes the calls that
// wait for that. Both under the lock: a Put may begin as soon as fn is over.
func (f *fills) end(k key.Key, fn func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	fn()
	close(f.mu.ended[k])
	delete(f.mu.ended, k)
}

// of is closed when the Put of k has ended; nil if none is under way.
func (f *fills) of(k key.Key) <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mu.ended[k]
}

// wait returns when the Puts under way have ended.
func (f *fills) wait(ctx context.Context, closed <-chan struct{}) error {
	f.mu.Lock()
	under := slices.Collect(maps.Values(f.mu.ended))
	f.mu.Unlock()
	for _, ended := range under {
		if err := awaitFill(ctx, ended, closed); err != nil {
			return err
		}
	}
	return nil
}

// awaitFill returns when a Put has ended.
func awaitFill(ctx context.Context, ended, closed <-chan struct{}) error {
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-closed:
		return tier.ErrClosed
	}
}
