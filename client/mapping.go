package client

import (
	"errors"
	"fmt"
	"math"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/socket"
	"github.com/kvstored/kvstored/internal/wire"
)

// mappings are the daemon's memory as this process sees it. The lock keeps
// them in place during a copy.
type mappings struct {
	mu struct {
		sync.RWMutex
		arena   []byte // nil: not mapped
		staging []byte
	}
}

// errUnmapped says that this process lacks what mapping memory takes.
var errUnmapped = errors.New("the daemon's memory cannot be mapped here")

// open maps what hello granted. It closes files in any case.
func (m *mappings) open(h *wire.HelloReply, files []*os.File) error {
	defer socket.CloseFiles(files)
	want := 0
	for _, f := range []wire.Features{wire.FeatureArena, wire.FeatureStaging} {
		if h.Granted&f != 0 {
			want++
		}
	}
	if int(h.Descriptors) == want && len(files) < want {
		return fmt.Errorf("%w: %d of %d descriptors came; raise the limit of open files", errUnmapped, len(files), want)
	}
	if len(files) != want || int(h.Descriptors) != want {
		return broken("it granted %d descriptors, announced %d and sent %d", want, h.Descriptors, len(files))
	}
	if h.Puts == wire.PutStaged && h.Granted&wire.FeatureStaging == 0 {
		return broken("it chose %s puts without the memory for them", h.Puts)
	}
	var err error
	if h.Granted&wire.FeatureArena != 0 {
		if m.mu.arena, err = mapFile(files[0], h.ArenaBytes, false); err != nil {
			return fmt.Errorf("map the arena: %w", err)
		}
		files = files[1:]
	}
	if h.Granted&wire.FeatureStaging != 0 {
		if m.mu.staging, err = mapFile(files[0], h.StagingBytes, true); err != nil {
			m.close()
			return fmt.Errorf("map the staging window: %w", err)
		}
		_ = unix.Madvise(m.mu.staging, unix.MADV_HUGEPAGE) // nothing depends on them
	}
	return nil
}

// mapFile maps n bytes of f. A file shorter than that would fault on access,
// so it is refused.
func mapFile(f *os.File, n uint64, writable bool) ([]byte, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if n == 0 || n > math.MaxInt || info.Size() < int64(n) {
		return nil, broken("memory of %d bytes was announced, the descriptor has %d", n, info.Size())
	}
	p, err := arena.MapHuge(f, int64(n), writable)
	if err != nil {
		err = fmt.Errorf("%w: %w", errUnmapped, err)
	}
	return p, err
}

// close unmaps. A view handed out before faults from then on.
func (m *mappings) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range []*[]byte{&m.mu.arena, &m.mu.staging} {
		if *p != nil {
			_ = arena.Unmap(*p) // fails only on what Map did not return
			*p = nil
		}
	}
}

// viewed is a chunk in the arena.
func (m *mappings) viewed(r wire.Ref) ([]byte, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if p := view(m.mu.arena, r.Offset, r.Length); p != nil {
		return p, nil
	}
	return nil, ErrClosed
}

// view is n bytes of b at off, or nil if that is not within b.
func view(b []byte, off uint64, n uint32) []byte {
	if off > uint64(len(b)) || uint64(n) > uint64(len(b))-off {
		return nil
	}
	return b[off : off+uint64(n) : off+uint64(n)]
}
