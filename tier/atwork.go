package tier

import (
	"context"
	"slices"

	"github.com/kvstored/kvstored/key"
)

// atWork is what workers do about one key.
type atWork struct {
	tasks int  // taken and not ended
	busy  bool // one of them is being written
	// wanted is set where one of them was found worth writing.
	wanted bool
}

// alone waits until nobody else writes a key; false if ctx ended first. Two
// at a time are two lives of it, with a delete between them: the second would
// take what the first has just written for its own, and the first then takes
// it back.
func (w *writer) alone(ctx context.Context, k key.Key) bool {
	for {
		w.mu.Lock()
		if at := w.mu.writing[k]; !at.busy {
			at.busy = true
			w.mu.writing[k] = at
			w.mu.Unlock()
			return true
		}
		change := w.changed()
		w.mu.Unlock()
		select {
		case <-change:
		case <-ctx.Done():
			return false
		}
	}
}

// done lets the next worker write a key.
func (w *writer) done(k key.Key) {
	w.mu.Lock()
	defer w.mu.Unlock()
	at := w.mu.writing[k]
	at.busy = false
	w.mu.writing[k] = at
	w.wake()
}

// written ends what next began.
func (w *writer) written(k key.Key) {
	w.mu.Lock()
	defer w.mu.Unlock()
	at := w.mu.writing[k]
	if at.tasks--; at.tasks > 0 {
		w.mu.writing[k] = at
	} else {
		delete(w.mu.writing, k)
	}
	w.wake()
}

// idle waits until no worker is at any of ks: what it found to write before
// they were deleted is gone again then.
func (w *writer) idle(ctx context.Context, ks []key.Key) error {
	for {
		w.mu.Lock()
		busy := len(w.mu.writing) > 0 && slices.ContainsFunc(ks, func(k key.Key) bool { return w.mu.writing[k].tasks > 0 })
		if !busy {
			w.mu.Unlock()
			return nil
		}
		change := w.changed()
		w.mu.Unlock()
		select {
		case <-change:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
