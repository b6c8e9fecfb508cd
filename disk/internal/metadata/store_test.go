package metadata

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/kvstored/kvstored/disk/internal/folders"
	"github.com/kvstored/kvstored/internal/database"
	"github.com/kvstored/kvstored/internal/database/databasetest"
	"github.com/kvstored/kvstored/tier/tiertest"
)

// testOptions are of a store in a folder of its own.
func testOptions(t testing.TB) Options {
	t.Helper()
	dir := tiertest.Folder(t)
	f, err := os.Create(filepath.Join(dir, "pulse"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	meta, err := folders.OpenFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = meta.Close() })
	return Options{Meta: meta, Pulse: f, ReserveBytes: 16 << 20, Patience: time.Minute, Database: databasetest.Open, Free: folders.AvailableBytes, Log: zerolog.Nop()}
}

// testStore is a store of its own.
func testStore(t testing.TB) *Store {
	t.Helper()
	s, err := Open(testOptions(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil && !errors.Is(err, ErrBroken) {
			t.Error(err)
		}
	})
	return s
}

// Badger takes the options for each amount of memory that is set aside.
func TestReserves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, reserve := range []int64{12 << 20, 16 << 20, 432 << 20, 4 << 30} {
			db, err := databasetest.Open(t.Context(), (&Options{ReserveBytes: reserve, Log: zerolog.Nop()}).database(tiertest.Folder(t)))
			if err != nil {
				t.Fatalf("reserve %d: %v", reserve, err)
			}
			if err := db.Close(); err != nil {
				t.Error(err)
			}
		}
	})
}

// free is a budget without an end.
type free struct{}

func (free) Claim(int64) bool                      { return true }
func (free) ClaimAnyway(int64)                     {}
func (free) Settle(int64)                          {}
func (free) Tight() bool                           { return false }
func (free) Compacted(func() (int64, error)) error { return nil }
func (free) Room() Room                            { return RoomAll }

// A database that ended its process three times in a row is moved aside. What the
// machine did to it does not count, nor what ended it after a long time.
func TestFailuresInARow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := testOptions(t)
		fail := func(why error, after time.Duration) {
			t.Helper()
			s, err := Open(o)
			if err != nil {
				t.Fatal(err)
			}
			s.Succeeded()
			time.Sleep(after)
			s.failed(why)
			if err := s.Close(); !errors.Is(err, ErrBroken) {
				t.Errorf("closed: %v", err)
			}
			<-s.db.Ended()
			if there, err := o.Meta.Exists(DamagedName); there || err != nil {
				t.Fatalf("moved aside after %v: %v", why, err)
			}
		}
		itself := &database.Death{How: "exit status 2", Words: "panic: a test says so"}
		for range maxFailedStarts + 1 {
			fail(&database.Death{How: "signal: killed"}, 0)
			fail(fmt.Errorf("a test says so: %w", syscall.EIO), 0)
			fail(itself, SteadyAfter+time.Second)
		}
		for range maxFailedStarts - 1 { // and the last one above
			fail(itself, 0)
		}
		s, err := Open(o)
		if err != nil {
			t.Fatal(err)
		}
		if there, err := o.Meta.Exists(DamagedName); !there || err != nil {
			t.Errorf("it is opened once more: %v", err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}

// What a device that fails may not have taken is no loss of the database's; what was
// synced is.
func TestDoubtAfterEIO(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := testOptions(t)
		s, err := Open(o)
		if err != nil {
			t.Fatal(err)
		}
		c := NewCommitter(s, free{}, 1)
		commit := func() {
			t.Helper()
			if !c.commit([]Change{set{}}) {
				t.Fatal("nothing is committed")
			}
		}
		commit()
		if err := s.Sync(); err != nil {
			t.Fatal(err)
		}
		synced, _ := s.witness.last()
		commit()
		s.failed(fmt.Errorf("a test says so: %w", syscall.EIO))
		if err := s.Close(); !errors.Is(err, ErrBroken) {
			t.Errorf("closed: %v", err)
		}
		w, err := openWitness(o.Meta)
		if err != nil {
			t.Fatal(err)
		}
		defer w.close()
		if err := w.check(synced - 1); !errors.Is(err, errLost) {
			t.Errorf("a commit that was synced is gone: %v", err)
		}
		if err := w.check(synced); err != nil {
			t.Errorf("one that was not: %v", err)
		}
	})
}

// set is a change of one pair.
type set struct{}

func (set) Apply(b *Batch) error { b.Set([]byte("pair"), nil); return nil }
func (set) Committed(error)      {}
