package tier

import (
	"context"
	"fmt"
	"time"
)

// Rebuilt is what a rebuild of a tier's index has done so far.
type Rebuilt struct {
	Running    bool
	Bytes      uint64 // of the files, looked at
	TotalBytes uint64 // of the files; Bytes are fewer at the end where a device hangs
	Headers    uint64 // of payloads, read
	Restored   uint64 // payloads that the index did not have
	Dropped    uint64 // payloads that it had, or would have got, that are wrong or were freed
	Resealed   uint64 // headers that were damaged, written anew
	Duration   time.Duration
}

// Rebuilder is a tier whose index can be made anew from what lies beside its
// payloads.
type Rebuilder interface {
	// Rebuild begins that, and returns. It is an error while the tier is off
	// or its index is being made. What was deleted does not come back.
	Rebuild(ctx context.Context) error
	// Rebuilt tells of the one that is under way, else of the last since the
	// tier was opened. It is an error where that could not begin, and while the
	// tier is off.
	Rebuilt() (Rebuilt, error)
}

// Rebuild begins a rebuild of the disk tier's index, if begin says so, and tells
// how far the last one is.
func (s *Stack) Rebuild(ctx context.Context, begin bool) (Rebuilt, error) {
	r, ok := under[Rebuilder](s.tiers[Disk])
	if !ok {
		return Rebuilt{}, fmt.Errorf("rebuild: %w", missing("there is no disk tier; disk.capacity is 0"))
	}
	if begin {
		if err := s.scanned(); err != nil {
			return Rebuilt{}, fmt.Errorf("rebuild: %w", err)
		}
		if err := r.Rebuild(ctx); err != nil {
			return Rebuilt{}, fmt.Errorf("rebuild: %w", err)
		}
	}
	sum, err := r.Rebuilt()
	if err != nil {
		err = fmt.Errorf("rebuild: %w", err)
	}
	return sum, err
}
