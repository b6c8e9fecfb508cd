package disk

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"

	"github.com/kvstored/kvstored/tier/tiertest"
)

// TestMeasureWrite: it says a speed, leaves nothing, and tells of a folder that is not
// there and of a context that has ended.
func TestMeasureWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := tiertest.Folder(t)
		if speed, err := MeasureWrite(t.Context(), dir); err != nil || speed <= 0 {
			t.Errorf("%v bytes a second, %v", speed, err)
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("left %v, %v", left, err)
		}
		if _, err := MeasureWrite(t.Context(), filepath.Join(dir, "none")); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("of a folder that is not there: %v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := MeasureWrite(ctx, dir); !errors.Is(err, context.Canceled) {
			t.Errorf("of a context that has ended: %v", err)
		}
	})
}
