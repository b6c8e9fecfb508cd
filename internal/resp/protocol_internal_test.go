package resp

import "testing"

// TestReplyShapesAllocateNothing: those of both versions go into the room of the replies.
func TestReplyShapesAllocateNothing(t *testing.T) {
	for _, version := range []protocol{resp2, resp3} {
		o := newOutput(nil, nil, 0, nil)
		o.speaks = version
		n := testing.AllocsPerRun(100, func() {
			o.null()
			o.pairs(7)
			o.verbatim("# Memory\r\n")
			o.buf = o.base[:0]
		})
		if n != 0 {
			t.Errorf("RESP%d: %v allocations", version, n)
		}
	}
}
