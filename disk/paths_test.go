package disk

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kvstored/kvstored/disk/internal/blockio"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
	"github.com/kvstored/kvstored/tier/tiertest"
)

// pathOptions are those of a tier over n paths.
func pathOptions(t testing.TB, n int) Options {
	o := testOptions("")
	o.Paths = nil
	for range n {
		o.Paths = append(o.Paths, tiertest.Folder(t))
	}
	o.CapacityBytes, o.SegmentBytes = 64*mib, 2*mib
	return o
}

// inPath counts the entries of each path.
func inPath(d *rig, n int) map[string][]int {
	in := make(map[string][]int)
	for i := range n {
		if e, _ := d.ledger.Find(keyOf(i)); e.Size > 0 && !location(e.Value.A).inline() {
			d.segments.mu.Lock()
			v := d.segments.find(location(e.Value.A).segment()).volume
			d.segments.mu.Unlock()
			in[v.dir] = append(in[v.dir], i)
		}
	}
	return in
}

// pathSize is how many bytes the payloads of fillPaths have.
const pathSize = 100_000

func fillPaths(t *testing.T, o Options, n int) (in map[string][]int) {
	t.Helper()
	m := newMemory(t)
	d, stop := start(t, o, nil)
	recoverAll(t, d)
	for i := range n {
		mustPut(t, d, m, i, pathSize)
	}
	in = inPath(d, n)
	recount(t, d)
	stop()
	return in
}

// Entries spread over the paths, the capacity holds over all of them, and
// all entries are there after a restart that names the paths in another order.
func TestSeveralPaths(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := pathOptions(t, 3)
		in := fillPaths(t, o, 90)
		for _, dir := range o.Paths {
			if n := len(in[dir]); n < 20 {
				t.Errorf("%d of 90 entries lie in one path of three", n)
			}
		}
		o.Meta = o.Paths[0]
		slices.Reverse(o.Paths)
		d, _ := start(t, o, nil)
		m := newMemory(t)
		if got := recoverAll(t, d); len(got) != 90 {
			t.Fatalf("%d of 90 entries are back", len(got))
		}
		for i := range 90 {
			mustGet(t, d, m, i, pathSize)
		}
		for i := range 600 {
			putOrTrim(t, d, m, 100+i, pathSize, func([]key.Key) {})
			if i%50 > 0 {
				continue
			}
			total := int64(0)
			for _, dir := range o.Paths {
				total += occupied(dir)
			}
			if total > o.CapacityBytes {
				t.Fatalf("%d bytes in all paths, capacity %d", total, o.CapacityBytes)
			}
		}
		if d.Stats().Evictions == 0 {
			t.Error("nothing was evicted")
		}
		recount(t, d)
	})
}

// A path that is not there takes only its entries along, and brings none back.
func TestMissingPath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := pathOptions(t, 3)
		in := fillPaths(t, o, 60)
		gone := o.Paths[1]
		if err := os.Rename(gone, gone+".away"); err != nil {
			t.Fatal(err)
		}
		for round, unmounted := range []bool{false, true} {
			if unmounted { // the folder that the disk was mounted on
				if err := os.MkdirAll(gone, 0o700); err != nil {
					t.Fatal(err)
				}
			}
			d, stop := start(t, o, nil)
			m := newMemory(t)
			if got := recoverAll(t, d); len(got) != 60-len(in[gone]) {
				t.Fatalf("%d entries; want %d", len(got), 60-len(in[gone]))
			}
			for _, dir := range []string{o.Paths[0], o.Paths[2]} {
				for _, i := range in[dir] {
					mustGet(t, d, m, i, pathSize)
				}
			}
			wantErr(t, get(t, d, m, in[gone][0], pathSize), tier.ErrNotFound)
			if n := d.Stats().Counters["paths_missing"]; n != 1 {
				t.Errorf("round %d: %d paths are missing", round, n)
			}
			recount(t, d)
			stop()
			if names, err := filepath.Glob(gone + "/*"); err != nil || len(names) > 0 {
				t.Fatalf("something was written where the disk is missing: %v %v", names, err)
			}
		}
		if err := errors.Join(os.Remove(gone), os.Rename(gone+".away", gone)); err != nil {
			t.Fatal(err)
		}
		d, _ := start(t, o, nil)
		m := newMemory(t)
		recoverAll(t, d)
		if d.Has(keyOf(in[gone][0])) {
			t.Error("an entry is back whose record was deleted")
		}
		if n := len(segmentFiles(t, gone)); n != 0 {
			t.Errorf("%d files without entries are left where the disk came back", n)
		}
		for i := 100; i < 130; i++ {
			mustPut(t, d, m, i, pathSize)
			mustGet(t, d, m, i, pathSize)
		}
		recount(t, d)
	})
}

func TestPathsAreGuarded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		two := pathOptions(t, 2)
		fillPaths(t, two, 4)
		other := pathOptions(t, 2)
		fillPaths(t, other, 4)
		link := filepath.Join(tiertest.Folder(t), "link")
		if err := os.Symlink(two.Paths[1], link); err != nil {
			t.Fatal(err)
		}
		for _, tt := range []struct {
			name  string
			paths []string
			says  string
		}{
			{"twice", []string{two.Paths[0], two.Paths[1], two.Paths[1] + "/"}, "are one folder"},
			{"by another name", []string{two.Paths[0], two.Paths[1], link}, "are one folder"},
			{"foreign", []string{two.Paths[0], other.Paths[1]}, "belongs to the set"},
			{"foreign, and a tier of its own", []string{two.Paths[0], other.Paths[0]}, "belongs to the set"},
			{"without the database", []string{two.Paths[1]}, "the database of the set"},
			{"with a new database", []string{tiertest.Folder(t), two.Paths[1]}, "whose database is not in"},
		} {
			o := two
			o.Paths, o.Meta = tt.paths, ""
			if d, err := openRig(o); err == nil || !strings.Contains(err.Error(), tt.says) {
				if err == nil {
					_ = d.Close()
				}
				t.Errorf("%s: %v; want one that says %q", tt.name, err, tt.says)
			}
		}
		if got := fillPaths(t, two, 4); len(got) == 0 { // the refused starts have changed nothing
			t.Error("the tier is empty")
		}
	})
}

// A path may join and leave; what stays, stays.
func TestPathsJoinAndLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := pathOptions(t, 1)
		fillPaths(t, o, 10)
		o.Paths = append(o.Paths, tiertest.Folder(t))
		in := fillPaths(t, o, 40)
		if len(in[o.Paths[1]]) == 0 {
			t.Fatal("the new path has nothing")
		}
		o.Paths = []string{o.Paths[0], tiertest.Folder(t)}
		d, _ := start(t, o, nil)
		m := newMemory(t)
		if got := recoverAll(t, d); len(got) != len(in[o.Paths[0]]) {
			t.Fatalf("%d entries; want %d", len(got), len(in[o.Paths[0]]))
		}
		for i := 100; i < 130; i++ {
			mustPut(t, d, m, i, pathSize)
		}
		recount(t, d)
	})
}

// probes is how many times, at most, a path that is off is tried in some time: after a
// pause that doubles each time.
func probes(in time.Duration) (n int) {
	for pause := tier.DefaultPause; in >= pause; pause *= 2 {
		in -= pause
		n++
	}
	return n
}

// A path whose device fails, or hangs, takes the others along in nothing: puts
// go elsewhere, what lies in the others is read, no error opens a breaker, and
// when the device works again the path is used again.
func TestPathInTrouble(t *testing.T) {
	for name, hang := range map[string]bool{"errors": false, "hangs": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := pathOptions(t, 2)
				bad := newFaulty(t, o.Paths[1])
				d, err := openRig(o, nil, bad)
				if err != nil {
					t.Fatal(err)
				}
				runTier(t, d)
				m := newMemory(t)
				for i := range 40 {
					mustPut(t, d, m, i, 100_000)
				}
				in := inPath(d, 40)
				stuck := make(chan struct{})
				if hang {
					bad.set(nil, stuck)
				} else {
					bad.set(syscall.EIO, nil)
				}
				lost, began := 0, time.Now()
				for i := 100; i < 160; i++ {
					switch err := put(t, d, m, i, 100_000); {
					case errors.Is(err, tier.ErrOff):
						lost++
					case err != nil:
						t.Fatalf("put %d: %v", i, err)
					}
				}
				most := 1 + probes(time.Since(began)) // only the put that waited for it, and the probes
				if hang && lost == 0 || lost > most {
					t.Errorf("%d of 60 puts were lost, want %d at most", lost, most)
				}
				for _, i := range in[o.Paths[0]] {
					mustGet(t, d, m, i, 100_000)
				}
				off := 0
				for _, i := range in[o.Paths[1]] {
					if err := get(t, d, m, i, 100_000); errors.Is(err, tier.ErrOff) {
						off++
					} else {
						t.Fatalf("get from the path in trouble: %v", err)
					}
				}
				if d.Stats().Counters["paths_off"] != 1 || off != len(in[o.Paths[1]]) {
					t.Errorf("%d paths off; %d of %d entries out of reach", d.Stats().Counters["paths_off"], off, len(in[o.Paths[1]]))
				}
				bad.set(nil, nil)
				close(stuck)
				for _, h := range []*blockio.Health{d.volumes[1].dev.Reading, d.volumes[1].dev.Writing} {
					h.ProbeNow()
				}
				mustPut(t, d, m, 200, 100_000)
				for _, i := range in[o.Paths[1]] {
					mustGet(t, d, m, i, 100_000)
				}
				if n := d.Stats().Counters["paths_off"]; n != 0 {
					t.Errorf("%d paths are still off", n)
				}
				checkBooks(t, d)
			})
		})
	}
}
