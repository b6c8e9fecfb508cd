package base

import (
	"sync"
	"testing"
)

// Each goroutine that asked before a change is woken by it, and by that one only.
func TestSignal(t *testing.T) {
	var s Signal
	s.Wake() // without a waiter
	first := s.Next()
	var woken sync.WaitGroup
	for range 8 {
		woken.Go(func() { <-first })
	}
	s.Wake()
	woken.Wait()
	select {
	case <-s.Next():
		t.Error("a change that was before is told again")
	default:
	}
	if n := testing.AllocsPerRun(100, func() { var s Signal; s.Wake() }); n > 0 {
		t.Errorf("%v allocations while nobody waits", n)
	}
}
