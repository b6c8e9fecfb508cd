package tier

import (
	"context"

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

// idle waits until no worker is at anything that d deletes: what it found to
// write before that is gone again then. Tasks no worker has taken yet need not
// be waited for: they will find that their chunk was deleted, or recalled, or
// cannot come up.
func (w *writer) idle(ctx context.Context, d *deletion) error {
	for {
		w.mu.Lock()
		busy := false
		for k := range w.mu.writing { // as many as there are workers
			busy = busy || d.has(k)
		}
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
