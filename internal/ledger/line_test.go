package ledger

import "testing"

// An id that is pushed again and again is in the line once, where it was first.
func TestLineHoldsEachOnce(t *testing.T) {
	var q line
	const far = 3 << pageBits
	for range 1000 {
		for _, id := range []uint32{1, far, 2} {
			q.push(id)
		}
	}
	if q.n != 3 {
		t.Fatalf("%d in the line", q.n)
	}
	if id := q.pop(); id != 1 || !q.push(1) || q.push(2) {
		t.Errorf("%d was first, or what was taken out cannot come back", id)
	}
	for _, want := range []uint32{far, 2, 1} {
		if id := q.pop(); id != want {
			t.Errorf("next is %d; want %d", id, want)
		}
	}
	if q.n != 0 || !q.push(2) || q.pop() != 2 {
		t.Errorf("%d left", q.n)
	}
}
