package database_test

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/table"

	"github.com/kvstored/kvstored/internal/database"
	"github.com/kvstored/kvstored/tier/tiertest"
)

// listOf is the list of tables of the database in dir.
func listOf(t *testing.T, dir string) map[uint64]badger.TableManifest {
	t.Helper()
	list, err := database.Listed(dir)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// unfinish has the list say that all tables but the last were made that one, as a
// process leaves it that has ended in a compaction before this was compared. Where
// none is written the list is empty.
func unfinish(t *testing.T, dir string, written bool) {
	t.Helper()
	removed, added := listOf(t, dir), make(map[uint64]badger.TableManifest)
	if written {
		last := slices.Max(slices.Collect(maps.Keys(removed)))
		data, err := os.ReadFile(table.NewFilename(last, dir))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(table.NewFilename(last+2, dir), data, 0o600); err != nil {
			t.Fatal(err)
		}
		added[last+2] = badger.TableManifest{Level: 6}
	}
	f, err := os.OpenFile(filepath.Join(dir, badger.ManifestFilename), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := database.ListInstead(f, added, removed); err != nil {
		t.Fatal(err)
	}
}

// Of a compaction that was listed, and whose process ended before it was found that
// tables are missing, nothing is left: all records are there.
func TestUnfinishedCompaction(t *testing.T) {
	const n = 2500
	for name, written := range map[string]bool{"a table was written": true, "none was": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dir := filepath.Join(tiertest.Folder(t), "db")
				for range 2 { // the second time there is one that was taken back
					d := open(t, dir)
					fill(t, d, n)
					if err := d.Close(); err != nil {
						t.Fatal(err)
					}
					before := listOf(t, dir)
					unfinish(t, dir, written)
					for range 2 { // it is not taken back again
						if _, err := database.TakeBackUnfinished(dir); err != nil {
							t.Fatal(err)
						}
						if got := listOf(t, dir); !maps.Equal(got, before) {
							t.Errorf("listed are %v; want %v", got, before)
						}
					}
					d = open(t, dir)
					check(t, d, n, none)
					if err := d.Close(); err != nil {
						t.Fatal(err)
					}
				}
			})
		})
	}
}

// A compaction whose tables are not all there any more was compared, and stays. A
// manifest that is damaged, or torn, is left to Badger.
func TestCompactionStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := filepath.Join(tiertest.Folder(t), "db")
		d := open(t, dir)
		fill(t, d, 4000)
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		manifest := filepath.Join(dir, badger.ManifestFilename)
		before := listOf(t, dir)
		unfinish(t, dir, true)
		text, err := os.ReadFile(manifest)
		if err != nil {
			t.Fatal(err)
		}
		stays := func(what string, text []byte) {
			t.Helper()
			if err := os.WriteFile(manifest, text, 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := database.TakeBackUnfinished(dir); err != nil {
				t.Errorf("%s: %v", what, err)
			}
			if got, err := os.ReadFile(manifest); err != nil || !slices.Equal(got, text) {
				t.Errorf("%s: the manifest is another one: %v", what, err)
			}
		}
		flipped := slices.Clone(text)
		flipped[database.FirstSetBytes]++
		stays("damaged", flipped)
		stays("torn", text[:len(text)-1])
		stays("empty", nil)
		for id := range before {
			if err := os.Truncate(table.NewFilename(id, dir), 0); err != nil {
				t.Fatal(err)
			}
			break
		}
		stays("being removed", text)
	})
}
