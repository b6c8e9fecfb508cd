package database

import (
	"runtime"
	"testing"
	"testing/synctest"
)

// TestCompactionsEndTogether: a compactor that waits for another one ends with the process
// that the other one has ended, where the process is a goroutine of this one.
func TestCompactionsEndTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ends := make(chan string, 2)
		c := &compactions{end: func(why string) {
			ends <- why
			runtime.Goexit()
		}}
		c.mu.idle.L = &c.mu
		c.begin(1, 5)
		waits := make(chan struct{})
		go func() {
			defer close(waits)
			c.begin(2, 5)
			t.Error("a second compaction has begun")
		}()
		synctest.Wait()
		go c.failed(1, "no space")
		<-waits
		if first, second := <-ends, <-ends; first != "a compaction failed: no space" || second == first {
			t.Errorf("ended over %q, then %q", first, second)
		}
	})
}
