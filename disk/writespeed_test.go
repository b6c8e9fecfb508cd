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

// TestMeasureWrite: it says a speed, also of a folder that is yet to be made, leaves
// nothing, and tells of a context that has ended.
func TestMeasureWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := tiertest.Folder(t)
		for _, folder := range []string{dir, filepath.Join(dir, "not", "yet")} {
			if speed, err := MeasureWrite(t.Context(), folder); err != nil || speed <= 0 {
				t.Errorf("%v bytes a second, %v", speed, err)
			}
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("left %v, %v", left, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := MeasureWrite(ctx, dir); !errors.Is(err, context.Canceled) {
			t.Errorf("of a context that has ended: %v", err)
		}
	})
}
