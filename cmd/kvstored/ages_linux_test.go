package main

import (
	"testing"
	"time"
)

// TestMaxAgeOutlivesAHandOver: a daemon that takes over keeps to the ages of chunks that
// the one before has stored.
func TestMaxAgeOutlivesAHandOver(t *testing.T) {
	t.Parallel()
	a := newAges(t, "stays", "an hour", "seconds")
	var d *demoDaemon
	over := a.before(func(age time.Duration) {
		if d != nil {
			d.kill()
		}
		d = handOverDaemon(t, 2<<30)
		if _, err := d.start(t.Context()); err != nil {
			t.Fatal(err)
		}
		a.store(d.socket, "stays", 0)
		a.store(d.socket, "an hour", time.Hour)
		a.store(d.socket, "seconds", age)
		flush(t, d.socket)
		d = succeed(t, d)
	})
	a.until("the disk is not scanned", func() bool {
		st, err := d.stats(t.Context())
		return err == nil && !st.Store.Recovering
	})
	time.Sleep(time.Until(over))
	for name, want := range map[string]int{"stays": agedChunks, "an hour": agedChunks, "seconds": 0} {
		if n := a.found(d.socket, name); n != want {
			t.Errorf("%s: %d chunks, want %d", name, n, want)
		}
	}
	a.until("what is over is not removed", func() bool {
		st, err := d.stats(t.Context())
		return err == nil && st.Store.Aged == agedChunks
	})
}
