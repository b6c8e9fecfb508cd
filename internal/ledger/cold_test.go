package ledger

import (
	"testing"

	"github.com/kvstored/kvstored/policy"
)

// What is cooled and used again and again is in the queue once, where it was
// first.
func TestColdQueueHoldsEachOnce(t *testing.T) {
	var c cold
	const far = 3 << pageBits
	for range 1000 {
		for _, id := range []uint32{1, far, 2} {
			c.push(id)
			c.drop(id)
		}
	}
	if c.n != 3 {
		t.Fatalf("%d in the queue", c.n)
	}
	c.push(2)
	c.push(far)
	for _, want := range []uint32{far, 2} {
		if id, ok := c.next(func(policy.ID) bool { return true }); !ok || id != want {
			t.Errorf("next is %d, %v; want %d", id, ok, want)
		}
	}
	if id, ok := c.next(func(policy.ID) bool { return true }); ok || c.n != 0 {
		t.Errorf("then %d, %v; %d left", id, ok, c.n)
	}
}
