package disk

import "sync/atomic"

// rebuilding is how far a rebuild of the index is: of total bytes, 0 while there is
// none. dropped is the payloads that were not taken, or not any more.
type rebuilding struct{ bytes, total, dropped atomic.Uint64 }

// begin starts the counts anew, for segments of so many bytes.
func (r *rebuilding) begin(total int64) {
	r.bytes.Store(0)
	r.dropped.Store(0)
	r.total.Store(uint64(total))
}

func (r *rebuilding) end() { r.total.Store(0) }
