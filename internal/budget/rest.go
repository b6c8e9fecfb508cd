package budget

import "runtime/metrics"

const (
	// restLook is the time between two looks at the heap of a daemon that may be at
	// rest, and so the least between two times that its garbage is given back.
	restLook = 5 * trimPause
	// restAllocs is what a daemon allocates at most from look to look while it
	// rests: requests for its metrics, and the like. One that allocates more is left
	// to the runtime, which collects often then.
	restAllocs = 64 << 20
	// restSpare is how much more than after the last time must be spare. With less
	// a collection would cost more than the memory is worth.
	restSpare = trimBytes
)

// glance is what the heap has at one moment.
type glance struct {
	spare     int64 // bytes held from the system beyond what was live at the last collection
	allocated int64 // bytes since the start
}

// rest says when the garbage of a daemon that does little is given back. One
// goroutine uses it.
type rest struct {
	allocated int64 // at the last look
	left      int64 // the least spare seen since the last time: no collection frees that
}

// due reports whether little was allocated since the last look, and much is spare.
func (r *rest) due(g glance) bool {
	allocated := g.allocated - r.allocated
	r.allocated, r.left = g.allocated, min(r.left, g.spare)
	return allocated <= restAllocs && g.spare-r.left >= restSpare
}

// gave notes the memory left after some was given back.
func (r *rest) gave(g glance) { r.allocated, r.left = g.allocated, g.spare }

// lookAtHeap asks the runtime, which stops nothing for it.
func lookAtHeap() (g glance) {
	samples := []metrics.Sample{
		{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/unused:bytes"},
		{Name: "/memory/classes/heap/free:bytes"}, {Name: "/gc/heap/live:bytes"}, {Name: "/gc/heap/allocs:bytes"},
	}
	metrics.Read(samples)
	for _, s := range samples[:3] {
		g.spare += int64(s.Value.Uint64())
	}
	g.spare -= int64(samples[3].Value.Uint64())
	g.allocated = int64(samples[4].Value.Uint64())
	return g
}
