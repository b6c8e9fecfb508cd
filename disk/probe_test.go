package disk

import (
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kvstored/kvstored/disk/internal/blockio"
	"github.com/kvstored/kvstored/tier/tiertest"
)

// paced is a device that reads some pieces at once, each in 5 ms.
type paced struct {
	blockio.Folder
	reads chan struct{}
}

type pacedFile struct {
	blockio.File
	f paced
}

func (paced) Direct() bool { return true }

func (f paced) Create(path string, size int64) (blockio.File, error) {
	g, err := f.Folder.Create(path, size)
	return pacedFile{g, f}, err
}

func (f pacedFile) WriteAt(p []byte, off int64) (int, error) {
	time.Sleep(20 * time.Millisecond)
	return f.File.WriteAt(p, off)
}

func (f pacedFile) ReadAt(p []byte, off int64) (int, error) {
	f.f.reads <- struct{}{}
	defer func() { <-f.f.reads }()
	time.Sleep(5 * time.Millisecond)
	return f.File.ReadAt(p, off)
}

// How many pieces are under way is found once, remembered, and can be set.
func TestDepthIsProbedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := testOptions(tiertest.Folder(t))
		o.IODepth = 0
		const gains = 3 // the device reads as many pieces at once
		device := paced{blockio.OSFolder{Folder: folderAt(t, o.Paths[0])}, make(chan struct{}, gains)}
		d, stop := start(t, o, device)
		if n := d.volumes[0].dev.Depth; n != gains {
			t.Errorf("depth %d, want %d", n, gains)
		}
		read, wrote := uint64(gains*blockio.PieceBytes/5e-3), uint64(blockio.PieceBytes/20e-3)
		if c := d.Stats().Paths[0].Counters; c["probed_read"]/1e6 != read/1e6 || c["probed_write"]/1e6 != wrote/1e6 {
			t.Errorf("a device that reads %d and writes %d bytes a second: %v", read, wrote, c)
		}
		stop()
		path := filepath.Join(o.Paths[0], depthName)
		if _, err := os.Stat(path); err != nil {
			t.Fatalf("it is not remembered: %v", err)
		}
		if names, err := filepath.Glob(filepath.Join(o.Paths[0], "probe*")); err != nil || len(names) > 0 {
			t.Errorf("left behind: %v %v", names, err)
		}
		for text, want := range map[string]int{"4 3000 2000\n": 4, "77 3000 2000\n": gains, "4\n": gains, "": gains} {
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			d, stop = start(t, o, device)
			if n := d.volumes[0].dev.Depth; n != want {
				t.Errorf("depth %d is remembered as %q, want %d", n, text, want)
			}
			if c := d.Stats().Paths[0].Counters; c["probed_write"] == 0 || want == 4 && c["probed_read"] != 3000e6 {
				t.Errorf("%q is remembered as %v", text, c)
			}
			stop()
		}
		o.IODepth = 7
		d, _ = start(t, o, device)
		if n := d.volumes[0].dev.Depth; n != 7 {
			t.Errorf("depth %d; 7 were asked for", n)
		}
	})
}

func TestBestDepth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
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
	})
}
