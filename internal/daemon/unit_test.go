package daemon

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestUnitStop: the first folder's unit counts, and files beside it count more.
func TestUnitStop(t *testing.T) {
	dir := t.TempDir()
	folders := []string{filepath.Join(dir, "etc"), filepath.Join(dir, "lib")}
	put := func(path, text string) {
		path = filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if d, file, ok := unitStop(folders); ok {
		t.Errorf("without a unit: %v of %s", d, file)
	}
	for i, step := range []struct {
		path, text string
		want       time.Duration
	}{
		{"lib/kvstored.service", "[Service]\nTimeoutStopSec=90s\n", 90 * time.Second},
		{"etc/kvstored.service", "[Service]\nTimeoutStopSec = 45\n", 45 * time.Second},
		{"lib/kvstored.service.d/a.conf", "[Service]\nTimeoutSec=1min 30s\n", 90 * time.Second},
		{"etc/kvstored.service.d/a.conf", "[Service]\nTimeoutStopSec=nonsense\n", 90 * time.Second},
	} {
		put(step.path, step.text)
		if d, _, ok := unitStop(folders); !ok || d != step.want {
			t.Errorf("step %d: %v, %v; want %v", i, d, ok, step.want)
		}
	}
	for text, want := range map[string]time.Duration{"infinity": 0, "0": 0, "2min": 2 * time.Minute, "1h 5m": 65 * time.Minute, "500ms": time.Second / 2, "3 seconds": 3 * time.Second} {
		if d, ok := unitTime(text); !ok || d != want {
			t.Errorf("%q is %v, %v; want %v", text, d, ok, want)
		}
	}
	for _, text := range []string{"", "-1", "soon", "5 parsecs", "-3s"} {
		if d, ok := unitTime(text); ok {
			t.Errorf("%q is %v", text, d)
		}
	}
}
