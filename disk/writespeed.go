package disk

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"github.com/kvstored/kvstored/disk/internal/folders"
)

// The most that MeasureWrite writes, and for how long it begins writes.
const (
	measuredBytes = 64 << 20
	measuredTime  = time.Second
	measuredPiece = 1 << 20
)

// MeasureWrite is how many bytes a second reach the device of a folder, or of the nearest
// above it that is there, in one stream:
// the bytes are synced, in a file without a name, so that nothing stays. It ends with ctx
// also where the device hangs; the write under way ends on its own.
func MeasureWrite(ctx context.Context, folder string) (bytesPerSecond float64, err error) {
	type result struct {
		speed float64
		err   error
	}
	done := make(chan result, 1)
	go func() {
		speed, err := measureWrite(ctx, folder)
		done <- result{speed, err}
	}()
	var r result
	select {
	case r = <-done:
	case <-ctx.Done():
		r.err = context.Cause(ctx)
	}
	if r.err != nil {
		return 0, fmt.Errorf("disk: measure writes in %s: %w", folder, r.err)
	}
	return r.speed, nil
}

func measureWrite(ctx context.Context, folder string) (float64, error) {
	if err := ctx.Err(); err != nil {
		return 0, err // nothing is begun
	}
	dir, err := folders.NearestExisting(folder)
	if err != nil {
		return 0, err
	}
	f, err := os.CreateTemp(dir, ".kvstored-speed-*")
	if err != nil {
		return 0, err
	}
	defer f.Close()
	if err := os.Remove(f.Name()); err != nil {
		return 0, err
	}
	piece := make([]byte, measuredPiece)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(piece) // never fails
	start, n := time.Now(), 0
	for n < measuredBytes && time.Since(start) < measuredTime && ctx.Err() == nil {
		if _, err := f.Write(piece); err != nil {
			return 0, err
		}
		n += len(piece)
	}
	if err := f.Sync(); err != nil {
		return 0, err
	}
	return float64(n) / time.Since(start).Seconds(), ctx.Err()
}
