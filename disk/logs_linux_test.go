package disk

import (
	"context"
	"encoding/binary"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/zeebo/xxh3"

	"github.com/kvstored/kvstored/disk/internal/folders"
	"github.com/kvstored/kvstored/disk/internal/metadata"
	"github.com/kvstored/kvstored/internal/database"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier/tiertest"
)

// Of a killed process's two logs the older one is damaged, or gone: the commits
// at its end are missed, and all entries in extents are there; deleted ones are
// not. So it is when the manifest does not list the table that was made of it.
func TestOlderLogIsDamaged(t *testing.T) {
	for name, hurt := range map[string]func(t *testing.T, path string){
		"a start ends amid it": func(t *testing.T, path string) {
			if err := os.Truncate(path, 5000); err != nil {
				t.Fatal(err)
			}
			o := testOptions(filepath.Dir(filepath.Dir(path)))
			opens := o.Database
			o.Database = func(ctx context.Context, d database.Options) (*database.DB, error) {
				if db, err := opens(ctx, d); err != nil || db.Close() != nil {
					t.Error("the database does not open")
				}
				return nil, &database.Death{How: "signal: killed"}
			}
			if _, err := openRig(o); err == nil {
				t.Fatal("it is open")
			}
			if _, err := os.Stat(path); err == nil {
				t.Error("the log is there yet")
			}
		},
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
			synctest.Test(t, func(t *testing.T) {
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
		})
	}
}

// The headers are surveyed also where the start that finds nothing of what the database had
// does not get through.
func TestSurveyIsOrderedFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := testOptions(tiertest.Folder(t))
		m := newMemory(t)
		d, stop := start(t, o, nil)
		recoverAll(t, d)
		mustPut(t, d, m, 1, 5000)
		stop()
		if err := os.Remove(filepath.Join(o.Paths[0], metadata.WitnessName)); err != nil {
			t.Fatal(err)
		}
		fails := o
		fails.Database = func(ctx context.Context, d database.Options) (*database.DB, error) {
			return nil, &database.Death{How: "signal: killed"}
		}
		if _, err := openRig(fails); err == nil {
			t.Fatal("it is open")
		}
		if _, err := os.Stat(filepath.Join(o.Paths[0], metadata.RebuildName)); err != nil {
			t.Error(err)
		}
		if d, _ = start(t, o, nil); !d.rebuilds {
			t.Error("the database is believed")
		}
		recoverAll(t, d)
		mustGet(t, d, m, 1, 5000)
	})
}

// Two logs without damage are none.
func TestTwoLogs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
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
	})
}

// A manifest that is cut back to where it was noted last lacks a table; the log
// that the table was made of is gone.
func TestManifestIsCutToWhatWasNoted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := testOptions(tiertest.Folder(t))
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
			_, err := os.Stat(first)
			return errors.Is(err, fs.ErrNotExist)
		})
		mustPut(t, d, m, 20, 5000)
		killed := testOptions(tiertest.Folder(t))
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
	})
}

// twoLogs is a tier whose process was killed while Badger had two logs, and the
// sizes of its entries; 0 for one that was deleted.
func twoLogs(t *testing.T) (o Options, sizes []int) {
	t.Helper()
	o = testOptions(tiertest.Folder(t))
	o.InlineMax = 0
	m := newMemory(t)
	d, stop := start(t, o, nil)
	defer stop()
	recoverAll(t, d)
	killed := testOptions(tiertest.Folder(t))
	killed.InlineMax = 0
	pad := make([]byte, 30_000) // commits of some size, so that a log is full soon
	commits := []func(i int){
		func(i int) { mustPut(t, d, m, i, 5000+i); sizes = append(sizes, 5000+i) },
		func(i int) {
			if i%3 == 0 {
				if err := d.Delete(t.Context(), []key.Key{keyOf(i / 3)}); err != nil {
					t.Fatal(err)
				}
				sizes[i/3] = 0
			}
		},
		func(int) { write(t, d, func(b *metadata.Batch) { b.Set([]byte("pad"), pad) }) },
	}
	for i := range 200 {
		for _, commit := range commits {
			if i < 10 { // some are to be in it
				commit(i)
				continue
			}
			was := databaseOf(t, o)
			commit(i)
			synctest.Wait() // a log that is full is made a table
			if is := databaseOf(t, o); is.log != was.log {
				copyDir(t, o.Paths[0], killed.Paths[0])
				was.undoTable(t, killed)
				return killed, sizes
			}
		}
	}
	t.Fatal("Badger never had two logs")
	return o, sizes
}

// oneLog is a database that has one log, at rest.
type oneLog struct {
	log          string // name of the file
	text, listed []byte // of it, and the list of tables
	tables       []string
}

func databaseOf(t *testing.T, o Options) (is oneLog) {
	t.Helper()
	logs := logsOf(t, o)
	text, err := os.ReadFile(logs[len(logs)-1])
	if err != nil || len(logs) > 1 {
		t.Fatal(logs, err)
	}
	return oneLog{filepath.Base(logs[0]), text, tables(t, o), tableFiles(t, o)}
}

func tableFiles(t *testing.T, o Options) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(o.Paths[0], folders.DatabaseName, "*.sst"))
	if err != nil {
		t.Fatal(err)
	}
	for i := range paths {
		paths[i] = filepath.Base(paths[i])
	}
	return paths
}

// undoTable makes of a later state of the database, which has another log by now, the one
// in which the table of this log is not listed yet: until then the log is all there is of it.
func (was oneLog) undoTable(t *testing.T, o Options) {
	t.Helper()
	dir := filepath.Join(o.Paths[0], folders.DatabaseName)
	err := errors.Join(
		os.WriteFile(filepath.Join(dir, was.log), was.text, 0o600),
		os.WriteFile(filepath.Join(dir, "MANIFEST"), was.listed, 0o600),
	)
	for _, name := range tableFiles(t, o) {
		if !slices.Contains(was.tables, name) {
			err = errors.Join(err, os.Remove(filepath.Join(dir, name)))
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	noteManifest(t, filepath.Join(o.Paths[0], metadata.WitnessName), was.listed)
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
