package daemon

import (
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/disk"
)

// TestDiskLimits: free space, less disk.min_free, and the files that the tier
// has already bound it.
func TestDiskLimits(t *testing.T) {
	const gib = 1 << 30
	c := config.Disk{Capacity: 8 * gib, MinFree: 2 * gib}
	both := func(free, held int64) fileSystem {
		return fileSystem{path: "/a", free: free, held: held, data: true, meta: true}
	}
	small := "too little for a segment and the database"
	bound := "disk.capacity is 8.0 GiB, but what is free, less disk.min_free (2.0 GiB), and what the tier holds come to "
	for name, tt := range map[string]struct {
		systems []fileSystem
		want    []string
	}{
		"enough":                        {[]fileSystem{both(10*gib, 0)}, nil},
		"its own files are no loss":     {[]fileSystem{both(4*gib, 6*gib)}, nil},
		"less than capacity":            {[]fileSystem{both(9*gib, 0)}, []string{bound + "7.0 GiB"}},
		"less than min_free":            {[]fileSystem{both(gib, 0)}, []string{small, bound + "0 B"}},
		"a segment without a database":  {[]fileSystem{both(3*gib, 0)}, []string{small, bound + "1.0 GiB"}},
		"two of which one has no room":  {[]fileSystem{both(20*gib, 0), {path: "/b", free: gib, data: true}}, []string{"/b has 1.0 GiB free"}},
		"the database elsewhere":        {[]fileSystem{{path: "/a", free: 10 * gib, data: true}, {path: "/m", free: 3 * gib, meta: true}}, nil},
		"the database has no room":      {[]fileSystem{{path: "/a", free: 10 * gib, data: true}, {path: "/m", free: gib, meta: true}}, []string{"too little for the database"}},
		"much room for a database only": {[]fileSystem{{path: "/a", free: 4 * gib, data: true}, {path: "/m", free: 99 * gib, meta: true}}, []string{bound + "2.1 GiB"}},
	} {
		got := roomWarnings(tt.systems, &c)
		if !slices.EqualFunc(got, tt.want, strings.Contains) {
			t.Errorf("%s: %q; want %q", name, got, tt.want)
		}
	}
}

// TestFileSystems: folders of one file system count once, also before they are
// made, and what lies in them is found.
func TestFileSystems(t *testing.T) {
	dir := t.TempDir()
	made := filepath.Join(dir, "made")
	if err := os.MkdirAll(filepath.Join(made, "sub"), 0o700); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(filepath.Join(made, "sub", "file"))
	if err != nil {
		t.Fatal(err)
	}
	payload := make([]byte, 1<<20)
	_, _ = rand.Read(payload) // it never fails
	_, err = f.Write(payload)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil { // some file systems find room only then
		t.Fatal(err)
	}
	got, err := fileSystems(&config.Disk{Paths: []string{made, filepath.Join(dir, "not", "yet")}, Meta: filepath.Join(made, "sub")})
	if err != nil || len(got) != 1 {
		t.Fatalf("%+v, %v; want one file system", got, err)
	}
	if f := got[0]; f.path != made || !f.data || !f.meta || f.free <= 0 || f.held < 1<<20 || f.held >= 2<<20 {
		t.Errorf("%+v", f)
	}
	if n, err := disk.OccupiedBytes(filepath.Join(dir, "not")); n != 0 || err != nil {
		t.Errorf("a folder that is not there occupies %d, %v", n, err)
	}
}

// TestDatabaseRoom: check counts with what the tier really sets aside.
func TestDatabaseRoom(t *testing.T) {
	cfg := smallConfig(t)
	if got, want := disk.DefaultMetaReserve(int64(cfg.Disk.Capacity)), int64(diskStats(t).Counters["badger_reserve_bytes"]); got != want {
		t.Errorf("%d bytes; the tier sets %d aside", got, want)
	}
}
