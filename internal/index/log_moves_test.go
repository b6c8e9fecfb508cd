package index

import (
	"math"
	"testing"
)

// A full log forgets its oldest batch for each new one, and seldom moves the others.
func TestFullLogStaysInPlace(t *testing.T) {
	const n = 1000
	l := NewLog(7, LogOptions{Changes: math.MaxInt})
	moves := 0
	var newest *Batch
	for i := range l.o.Batches + n {
		l.number(make([]Change, 1))
		list := l.mu.list
		if i >= l.o.Batches && &list[len(list)-2] != newest {
			moves++
		}
		newest = &list[len(list)-1]
	}
	if moves > n/100 {
		t.Errorf("%d batches moved the others %d times", n, moves)
	}
	if len(l.mu.list) != l.o.Batches || l.mu.changes != l.o.Batches || l.Oldest() != n {
		t.Errorf("%d batches, %d changes from %d on", len(l.mu.list), l.mu.changes, l.Oldest())
	}
}
