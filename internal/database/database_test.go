package database_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/kvstored/kvstored/internal/database"
	"github.com/kvstored/kvstored/internal/database/databasetest"
	"github.com/kvstored/kvstored/tier/tiertest"
)

func testOptions(dir string) database.Options {
	return database.Options{Dir: dir, MemTableBytes: 1 << 20, MaxValueBytes: 64 << 10, Log: zerolog.Nop()}
}

func open(t *testing.T, dir string) *database.DB {
	t.Helper()
	d, err := databasetest.Open(t.Context(), testOptions(dir))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		d.Kill(errors.New("the test is over"))
		<-d.Ended() // its files are closed when the folder goes
	})
	return d
}

func keyOf(n int) []byte { return fmt.Appendf(nil, "k%06d", n) }

func value(n int) []byte { return bytes.Repeat([]byte{byte(n)}, n%5000) }

// fill commits n pairs in groups, the last of which is of many parts.
func fill(t *testing.T, d *database.DB, n int) {
	t.Helper()
	for i := range n {
		d.Batch().Set(keyOf(i), value(i))
		if i < 10 || i == n-1 {
			if err := d.Batch().Flush(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// check reads all records of fill back but the deleted ones, by key and page by
// page.
func check(t *testing.T, d *database.DB, n int, deleted func(int) bool) {
	t.Helper()
	keys := make([][]byte, n)
	for i := range keys {
		keys[i] = keyOf(i)
	}
	got := 0
	err := d.Get(keys, func(i int, v []byte) {
		if got++; deleted(i) != (v == nil) || v != nil && !bytes.Equal(v, value(i)) {
			t.Errorf("key %d has %d bytes (nil: %t)", i, len(v), v == nil)
		}
	})
	if err != nil || got != n {
		t.Fatalf("%d of %d keys: %v", got, n, err)
	}
	next, pages := 0, 0
	var after []byte
	for more := true; more; pages++ {
		more, err = d.Page([]byte("k"), after, 100, func(k, v []byte) error {
			for deleted(next) {
				next++
			}
			if !bytes.Equal(k, keyOf(next)) || !bytes.Equal(v, value(next)) {
				t.Errorf("%q with %d bytes comes where %d is due", k, len(v), next)
			}
			after = k
			next++
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for next < n && deleted(next) {
		next++
	}
	if next != n || pages < n/400 {
		t.Errorf("%d of %d in %d pages", next, n, pages)
	}
}

func none(int) bool { return false }

// Committed records are there, by key and page by page, also after a close.
func TestDatabase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 2000
		dir := filepath.Join(tiertest.Folder(t), "db")
		d := open(t, dir)
		fill(t, d, n)
		check(t, d, n, none)
		for i := 0; i < n; i += 3 {
			d.Batch().Delete(keyOf(i))
		}
		if err := errors.Join(d.Batch().Flush(), d.Sync()); err != nil {
			t.Fatal(err)
		}
		gone := func(i int) bool { return i%3 == 0 }
		check(t, d, n, gone)
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		d = open(t, dir)
		check(t, d, n, gone)
		no := errors.New("no")
		if _, err := d.Page([]byte("k"), nil, 10, func(_, _ []byte) error { return no }); !errors.Is(err, no) {
			t.Errorf("a page that is not wanted: %v", err)
		}
	})
}

// A database that another process has open, and one that is none, are errors of
// Badger's; so is one that may not be opened in time.
func TestOpenRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := tiertest.Folder(t)
		d := open(t, dir)
		var no database.Refused
		if _, err := databasetest.Open(t.Context(), testOptions(dir)); !errors.As(err, &no) || database.Ends(err) {
			t.Errorf("opened twice: %v", err)
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "MANIFEST"), []byte("none"), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := databasetest.Open(t.Context(), testOptions(dir)); !errors.As(err, &no) {
			t.Errorf("no manifest: %v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := databasetest.Open(ctx, testOptions(tiertest.Folder(t))); !errors.Is(err, context.Canceled) {
			t.Errorf("no time: %v", err)
		}
		bad := testOptions(tiertest.Folder(t))
		bad.MaxValueBytes = 1 << 20
		if _, err := databasetest.Open(t.Context(), bad); !errors.As(err, &no) || !strings.Contains(err.Error(), "fit together") {
			t.Errorf("values larger than a transaction: %v", err)
		}
	})
}

// Tables without a manifest are no new database, and are not removed.
func TestMissingManifest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := tiertest.Folder(t)
		d := open(t, dir)
		fill(t, d, 20)
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(filepath.Join(dir, "MANIFEST")); err != nil {
			t.Fatal(err)
		}
		_, err := databasetest.Open(t.Context(), testOptions(dir))
		var no database.Refused
		if !errors.As(err, &no) || !strings.Contains(err.Error(), "manifest is missing") {
			t.Errorf("got %v", err)
		}
		if tables, _ := filepath.Glob(filepath.Join(dir, "*.sst")); len(tables) == 0 {
			t.Error("the tables are gone")
		}
	})
}

// A database that is killed loses nothing, and says why to all who wait.
func TestKilled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := tiertest.Folder(t)
		d := open(t, dir)
		fill(t, d, 100)
		why := errors.New("it is no more")
		d.Kill(why)
		d.Batch().Set(keyOf(1), nil)
		for what, err := range map[string]error{
			"get": d.Get([][]byte{keyOf(1)}, func(int, []byte) { t.Error("a value") }), "commit": d.Batch().Flush(), "sync": d.Sync(), "close": d.Close(),
		} {
			if !errors.Is(err, why) || !database.Ends(err) {
				t.Errorf("%s: %v", what, err)
			}
		}
		<-d.Ended()
		var death *database.Death
		if !errors.As(d.Err(), &death) || death.How != "signal: killed" {
			t.Errorf("it ended over %v", d.Err())
		}
		check(t, open(t, dir), 100, none)
	})
}

// A flush that fails for ever, as in a folder that is gone, ends with a kill.
func TestKilledWithoutFolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := filepath.Join(tiertest.Folder(t), "db")
		d := open(t, dir)
		fill(t, d, 20)
		if err := os.Rename(dir, dir+".away"); err != nil {
			t.Fatal(err)
		}
		closed := make(chan error, 1)
		go func() { closed <- d.Close() }()
		time.Sleep(time.Minute)
		why := errors.New("it does not close")
		d.Kill(why)
		if err := <-closed; !errors.Is(err, why) {
			t.Errorf("closed: %v", err)
		}
		<-d.Ended()
		check(t, open(t, dir+".away"), 20, none)
	})
}

// A damaged table, which ends a process, ends the database alone, with what Badger said.
func TestDamagedTable(t *testing.T) {
	dir := tiertest.Folder(t) // in no bubble: Badger leaves a goroutine of a database that it does not open
	for at := range 40 {
		dir := filepath.Join(dir, fmt.Sprint(at))
		d := open(t, dir)
		fill(t, d, 20)
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		tables, err := filepath.Glob(filepath.Join(dir, "*.sst"))
		if err != nil || len(tables) != 1 {
			t.Fatal(tables, err)
		}
		text, err := os.ReadFile(tables[0])
		if err != nil {
			t.Fatal(err)
		}
		text[len(text)-1-at] ^= 0x40
		if err := os.WriteFile(tables[0], text, 0o600); err != nil {
			t.Fatal(err)
		}
		d, err = databasetest.Open(t.Context(), testOptions(dir))
		var death *database.Death
		switch {
		case err == nil: // Badger goes on without it
			_ = d.Close()
		case errors.As(err, &death):
			if !strings.Contains(death.Words, "panic: ") || death.How != "exit status 1" {
				t.Errorf("a bit %d from the end: %v", at, err)
			}
		}
	}
}
