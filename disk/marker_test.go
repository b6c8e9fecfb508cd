package disk

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/rs/zerolog"

	"github.com/kvstored/kvstored/disk/internal/folders"
	"github.com/kvstored/kvstored/internal/test/logtest"
)

// A marker, or the list of the paths, that is empty, garbled or gone costs
// nothing that is stored: it is set aside, said, and written anew.
func TestDamagedMarkers(t *testing.T) {
	garbage := map[string][]byte{
		"empty": {}, "other words": []byte("something else"), "cut off": []byte("kvstored-disk 1\nse"),
		"of a newer program, it seems": []byte("kvstored-disk 9\nset abc\n"), "zeros": make([]byte, 60), "gone": nil,
	}
	for name, text := range garbage {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := pathOptions(t, 2)
				fillPaths(t, o, 12)
				for _, path := range []string{
					filepath.Join(o.Paths[0], folders.FormatName), filepath.Join(o.Paths[1], folders.FormatName), filepath.Join(o.Paths[0], folders.MembersName),
				} {
					damageMarker(t, path, text)
					wantAll(t, o, path, text != nil, 12)
					wantAll(t, o, "", false, 12) // and the second start finds nothing to say
				}
			})
		})
	}
}

// Markers that were exchanged between two paths, or one with the copy of the
// other: which path is which is taken from the list.
func TestExchangedMarkers(t *testing.T) {
	for _, names := range [][2]string{
		{folders.FormatName, folders.FormatName}, {folders.FormatName, folders.FormatCopy}, {folders.FormatCopy, folders.FormatName}, {folders.FormatCopy, folders.FormatCopy},
	} {
		t.Run(names[0]+" "+names[1], func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := pathOptions(t, 2)
				fillPaths(t, o, 12)
				a, b := filepath.Join(o.Paths[0], names[0]), filepath.Join(o.Paths[1], names[1])
				for _, move := range [][2]string{{a, a + "~"}, {b, a}, {a + "~", b}} {
					if err := os.Rename(move[0], move[1]); err != nil {
						t.Fatal(err)
					}
				}
				wantAll(t, o, a, true, 12)
				wantAll(t, o, "", false, 12)
			})
		})
	}
}

// A folder of format 1, which was in no release, is refused and left alone.
func TestFormat1IsRefused(t *testing.T) {
	o := testOptions(t.TempDir())
	text := []byte("kvstored-disk 1\nset 00112233445566778899aabbccddeeff\n")
	path := filepath.Join(o.Paths[0], folders.FormatName)
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Check(o); err == nil || !strings.Contains(err.Error(), "in no release") {
		t.Errorf("check: %v", err)
	}
	if _, err := Open(o); err == nil || IsTrouble(err) {
		t.Errorf("open: %v", err)
	}
	if now, err := os.ReadFile(path); err != nil || string(now) != string(text) {
		t.Errorf("the marker is %q now, %v", now, err)
	}
}

func damageMarker(t *testing.T, path string, text []byte) {
	t.Helper()
	err := os.Remove(path)
	if text != nil {
		err = os.WriteFile(path, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// wantAll starts a tier with n entries, which says of a file, if it is not "",
// that it is damaged, and nothing of any other.
func wantAll(t *testing.T, o Options, damaged string, aside bool, n int) {
	t.Helper()
	if err := Check(o); err != nil {
		t.Fatalf("check: %v", err)
	}
	var log logtest.Book
	o.Log = zerolog.New(&log)
	d, stop := start(t, o, nil)
	defer stop()
	if got := recoverAll(t, d); len(got) != n {
		t.Fatalf("%d entries of %d are back", len(got), n)
	}
	m := newMemory(t)
	for i := range n {
		mustGet(t, d, m, i, pathSize)
	}
	if said := strings.Contains(log.String(), "did not hold what it should"); said != (damaged != "" && (aside || filepath.Base(damaged) == folders.FormatName)) {
		t.Fatalf("damage of %q, said: %t", damaged, said)
	}
	if _, err := os.Stat(damaged + ".damaged"); aside && err != nil && damaged != "" {
		t.Errorf("what was damaged is not set aside: %v", err)
	}
}
