package stack

import (
	"sync"
	"sync/atomic"

	"github.com/kvstored/kvstored/key"
)

// mostWorths is how many chunks worths knows of: some 4 MiB.
const mostWorths = 1 << 16

// worths is how much of a prompt hangs on a window or a state, for policies that weigh what
// an entry costs against its bytes: what its length makes usable beyond the usable length
// before it, in chunks. It is safe for concurrent use, and a leaf in the order of locks.
// Other windows and states count as one chunk; when it is full it forgets all.
type worths struct {
	some atomic.Bool // whether it knows any
	mu   struct {
		sync.RWMutex
		of map[key.Key]uint32
	}
}

// note has chunks stand for n chunks, unless they stand for more.
func (w *worths) note(ks []key.Key, n int) {
	if n < 2 || len(ks) == 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.of == nil || len(w.mu.of)+len(ks) > mostWorths {
		w.mu.of = make(map[key.Key]uint32)
	}
	for _, k := range ks {
		w.mu.of[k] = max(w.mu.of[k], uint32(n))
	}
	w.some.Store(true)
}

// chunks is for how many a chunk stands; 0 if that is not known.
func (w *worths) chunks(k key.Key) int64 {
	if !w.some.Load() {
		return 0
	}
	w.mu.RLock()
	defer w.mu.RUnlock()
	return int64(w.mu.of[k])
}
