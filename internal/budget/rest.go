package budget

import "runtime/metrics"

const (
	// restLook is the time between two looks at what a daemon allocates, and so the
	// least that it must have been at rest before its memory is given back.
	restLook = 5 * trimPause
	// restAllocs is what a daemon allocates at most from look to look while it
	// rests: answers with its metrics, and the like. One that allocates more is left
	// to the runtime, which collects often then.
	restAllocs = 4 << 20
)

// rest says when the garbage of a daemon that does little is given back: once after
// each time that it did more. What was live at the last collection may be garbage
// since, of which only another one tells. One goroutine uses it.
type rest struct {
	seen int64 // bytes allocated at the last look, since the start
	gave int64 // when memory was last given back for rest
}

// due reports whether little was allocated since the last look, and much since memory
// was last given back; it is given back then.
func (r *rest) due(allocated int64) bool {
	little := allocated-r.seen <= restAllocs
	r.seen = allocated
	if !little || allocated-r.gave < trimBytes {
		return false
	}
	r.gave = allocated
	return true
}

// allocatedBytes is what the Go heap has allocated since the start. Nothing stops
// for it.
func allocatedBytes() int64 {
	sample := [1]metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(sample[:])
	return int64(sample[0].Value.Uint64())
}
