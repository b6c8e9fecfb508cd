package spin

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// What a kernel writes of waits for processors is read as it is meant; of other text
// nothing is known.
func TestKernelsTexts(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"26873811 1193057 162\n": 1193057, // Linux 6.12: time on a processor, run delay, slices
		"0 0 0\n":                0,
	} {
		if d, ok := runDelay([]byte(text)); d != want || !ok {
			t.Errorf("%q: %v, %t", text, d, ok)
		}
	}
	for text, want := range map[string]int{
		"0.52 0.58 0.59 3/613 24187\n": 3,
		"12.00 9.1 8.00 17/92 1\n":     17,
	} {
		if n, ok := running([]byte(text)); n != want || !ok {
			t.Errorf("%q: %d, %t", text, n, ok)
		}
	}
	for _, text := range []string{"", "12\n", "a b c d/e f\n", "1 -\n"} {
		if d, ok := runDelay([]byte(text)); ok {
			t.Errorf("%q: %v", text, d)
		}
		if n, ok := running([]byte(text)); ok {
			t.Errorf("%q: %d", text, n)
		}
	}
	for text, want := range map[string]time.Duration{
		"some avg10=1.52 avg60=0.40 avg300=0.10 total=7654321\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=1\n": 7654321 * time.Microsecond,
		"some avg10=0.00 avg60=0.00 avg300=0.00 total=12\n":                                                      12 * time.Microsecond, // before Linux 5.13
		"some total=soon\n": 0,
		"":                  0,
	} {
		path := filepath.Join(t.TempDir(), "cpu")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if d := stalled(path); d != want {
			t.Errorf("%q: %v, want %v", text, d, want)
		}
	}
	if d := stalled(filepath.Join(t.TempDir(), "none")); d != 0 {
		t.Errorf("no file: %v", d)
	}
}
