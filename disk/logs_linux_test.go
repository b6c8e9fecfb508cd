package disk

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/zeebo/xxh3"
	"golang.org/x/sys/unix"

	"github.com/kvstored/kvstored/disk/internal/filesystem"
	"github.com/kvstored/kvstored/disk/internal/folders"
	"github.com/kvstored/kvstored/disk/internal/metadata"
	"github.com/kvstored/kvstored/key"
)

// Of a killed process's two logs the older one is damaged, or gone: the commits
// at its end are missed, and all entries in extents are there; deleted ones are
// not. So it is when the manifest does not list the table that was made of it.
func TestOlderLogIsDamaged(t *testing.T) {
	for name, hurt := range map[string]func(t *testing.T, path string){
		"flipped": func(t *testing.T, path string) { flip(t, path, 1000) },
		"cut": func(t *testing.T, path string) {
			if err := os.Truncate(path, 5000); err != nil {
				t.Fatal(err)
			}
		},
		"empty": func(t *testing.T, path string) {
			if err := os.Truncate(path, 0); err != nil {
				t.Fatal(err)
			}
		},
		"gone": func(t *testing.T, path string) {
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			o, sizes := twoLogs(t)
			logs, err := filepath.Glob(filepath.Join(o.Paths[0], folders.DatabaseName, "*.mem"))
			if err != nil || len(logs) < 2 {
				t.Fatal(logs, err)
			}
			hurt(t, logs[0]) // by name, and so by age
			m := newMemory(t)
			d, _ := start(t, o, nil)
			if !d.rebuilds {
				t.Error("nothing is noticed")
			}
			got := recoverAll(t, d)
			for i, size := range sizes {
				_, is := got[keyOf(i)]
				switch {
				case size == 0 && is:
					t.Errorf("%d was deleted and is back", i)
				case size > 0:
					mustGet(t, d, m, i, size)
				}
			}
			recount(t, d)
		})
	}
}

// Two logs without damage are none.
func TestTwoLogs(t *testing.T) {
	o, sizes := twoLogs(t)
	m := newMemory(t)
	d, _ := start(t, o, nil)
	if d.rebuilds {
		t.Error("the database is taken for damaged")
	}
	recoverAll(t, d)
	for i, size := range sizes {
		if size > 0 {
			mustGet(t, d, m, i, size)
		}
	}
}

// A manifest that is cut back to where it was noted last lacks a table; the log
// that the table was made of is gone.
func TestManifestIsCutToWhatWasNoted(t *testing.T) {
	o := testOptions(t.TempDir())
	m := newMemory(t)
	d, stop := start(t, o, nil)
	defer stop()
	recoverAll(t, d)
	for i := range 20 {
		mustPut(t, d, m, i, 5000)
	}
	manifest := filepath.Join(folders.DatabaseName, "MANIFEST")
	older, err := os.ReadFile(filepath.Join(o.Paths[0], manifest))
	if err != nil {
		t.Fatal(err)
	}
	logs := logsOf(t, o)
	first := logs[len(logs)-1]
	pad := make([]byte, 30_000)
	await(t, "the log is not made a table", func() bool {
		write(t, d, func(b *metadata.Batch) { b.Set([]byte("pad"), pad) })
		there, err := filesystem.Exists(first)
		return !there && err == nil
	})
	mustPut(t, d, m, 20, 5000)
	killed := testOptions(t.TempDir())
	copyDir(t, o.Paths[0], killed.Paths[0])
	if err := os.WriteFile(filepath.Join(killed.Paths[0], manifest), older, 0o600); err != nil {
		t.Fatal(err)
	}
	noteManifest(t, filepath.Join(killed.Paths[0], metadata.WitnessName), older)
	again, _ := start(t, killed, nil)
	if !again.rebuilds {
		t.Error("nothing is noticed")
	}
	if got := recoverAll(t, again); len(got) != 21 {
		t.Errorf("%d entries are back, want 21", len(got))
	}
	for i := range 21 {
		mustGet(t, again, m, i, 5000)
	}
}

// twoLogs is a tier whose process was killed while Badger had two logs, and the
// sizes of its entries; 0 for one that was deleted.
func twoLogs(t *testing.T) (o Options, sizes []int) {
	t.Helper()
	o = testOptions(t.TempDir())
	o.InlineMax = 0
	m := newMemory(t)
	d, stop := start(t, o, nil)
	defer stop()
	recoverAll(t, d)
	killed := testOptions(t.TempDir())
	killed.InlineMax = 0
	pad := make([]byte, 30_000) // commits of some size, so that a log is full soon
	var listed []byte           // when there was one
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		if len(logsOf(t, o)) < 2 {
			listed = tables(t, o)
		}
		i := len(sizes)
		if i < 200 {
			mustPut(t, d, m, i, 5000+i)
			sizes = append(sizes, 5000+i)
			if i%3 == 0 {
				if err := d.Delete(t.Context(), []key.Key{keyOf(i / 3)}); err != nil {
					t.Fatal(err)
				}
				sizes[i/3] = 0
			}
		}
		write(t, d, func(b *metadata.Batch) { b.Set([]byte("pad"), pad) })
		if len(logsOf(t, o)) < 2 || i < 20 {
			continue
		}
		pid := d.db.Pid()
		stopProcess(t, pid)
		// Until its table is listed the older log is all there is of it.
		two := len(logsOf(t, o)) == 2 && bytes.Equal(tables(t, o), listed)
		if two {
			copyDir(t, o.Paths[0], killed.Paths[0])
		}
		if err := unix.Kill(pid, unix.SIGCONT); err != nil {
			t.Fatal(err)
		}
		if two {
			return killed, sizes
		}
	}
	t.Fatal("Badger never had two logs")
	return o, sizes
}

// logsOf are the logs of the database, oldest first.
func logsOf(t *testing.T, o Options) []string {
	t.Helper()
	logs, err := filepath.Glob(filepath.Join(o.Paths[0], folders.DatabaseName, "*.mem"))
	if err != nil || len(logs) == 0 {
		t.Fatal(logs, err)
	}
	return logs
}

// tables is the database's list of tables.
func tables(t *testing.T, o Options) []byte {
	t.Helper()
	list, err := os.ReadFile(filepath.Join(o.Paths[0], folders.DatabaseName, "MANIFEST"))
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// noteManifest has a witness say that the list of tables was this one when it was
// noted last, and when it was synced: size, first change and checksum.
func noteManifest(t *testing.T, witness string, list []byte) {
	t.Helper()
	text, err := os.ReadFile(witness)
	if err != nil {
		t.Fatal(err)
	}
	le := binary.LittleEndian
	for _, at := range []int{56, 80} { // behind two numbers and the boot
		le.PutUint64(text[at:], uint64(len(list)))
		copy(text[at+8:], list[8:16])
		le.PutUint64(text[at+16:], xxh3.Hash(list))
	}
	le.PutUint64(text[len(text)-8:], xxh3.Hash(text[:len(text)-8]))
	if err := os.WriteFile(witness, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// stopProcess returns when all threads of a process have stopped; it goes on
// with the test's end at the latest.
func stopProcess(t *testing.T, pid int) {
	t.Helper()
	if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Kill(pid, unix.SIGCONT) })
	threads := fmt.Sprintf("/proc/%d/task/*/stat", pid)
	await(t, "the database's process does not stop", func() bool {
		stats, _ := filepath.Glob(threads) // the pattern is a good one
		for _, stat := range stats {
			if text, err := os.ReadFile(stat); err == nil && !strings.Contains(string(text), ") T ") {
				return false
			}
		}
		return true
	})
}
