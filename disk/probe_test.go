package disk

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/kvstored/kvstored/disk/internal/blockio"
)

// How many pieces are under way is found once, remembered, and can be set.
func TestDepthIsProbedOnce(t *testing.T) {
	o := testOptions(t.TempDir())
	o.IODepth = 0
	if f, err := blockio.NewFolder(o.Paths[0], false); err != nil || !f.IsDirect {
		t.Skip("the probe is for direct I/O")
	}
	d, stop := start(t, o, nil)
	found := d.volumes[0].dev.Depth
	if found < defaultIODepth || found > maxProbedDepth {
		t.Errorf("depth %d", found)
	}
	stop()
	path := filepath.Join(o.Paths[0], depthName)
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("it is not remembered: %v", err)
	}
	if names, err := filepath.Glob(filepath.Join(o.Paths[0], "probe*")); err != nil || len(names) > 0 {
		t.Errorf("left behind: %v %v", names, err)
	}
	for text, want := range map[string]int{"3\n": 3, "77\n": 0, "": 0} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		d, stop = start(t, o, nil)
		if n := d.volumes[0].dev.Depth; want > 0 && n != want || n < defaultIODepth || n > maxProbedDepth {
			t.Errorf("depth %d is remembered as %q", n, text)
		}
		stop()
	}
	o.IODepth = 7
	d, _ = start(t, o, nil)
	if n := d.volumes[0].dev.Depth; n != 7 {
		t.Errorf("depth %d; 7 were asked for", n)
	}
}

func TestBestDepth(t *testing.T) {
	for _, tt := range []struct {
		rates []int // of 2, 3 and 4
		want  int
	}{
		{[]int{1000, 1000, 1000}, 2},
		{[]int{1000, 1090, 1095}, 2}, // gains next to nothing
		{[]int{1000, 1200, 1250}, 3},
		{[]int{1000, 1050, 1200}, 4}, // gains in the end
		{[]int{1000, 1200, 1400}, 4},
		{[]int{1000, 900, 800}, 2},
	} {
		if got := bestDepth(append([]int{0, 0}, tt.rates...)); got != tt.want {
			t.Errorf("%v: %d, want %d", tt.rates, got, tt.want)
		}
	}
}
