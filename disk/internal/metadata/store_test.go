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

	"github.com/kvstored/kvstored/disk/internal/filesystem"
	"github.com/kvstored/kvstored/internal/database"
	"github.com/kvstored/kvstored/tier"
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
	meta, err := filesystem.OpenFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = meta.Close() })
	return Options{Meta: meta, Pulse: f, ReserveBytes: 16 << 20, Patience: time.Minute, Database: database.OpenHere, Free: filesystem.AvailableBytes, Log: zerolog.Nop(), Trouble: zerolog.Nop()}
}

// testStore is a store of its own, which nothing mends but the test.
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

// breakStore has a database fail, and returns when its process has ended.
func breakStore(s *Store, why error) {
	db := s.use.db
	s.failed(db, why)
	db.Kill(why)
	<-db.Ended()
}

// Badger takes the options for each amount of memory that is set aside.
func TestReserves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, reserve := range []int64{12 << 20, 16 << 20, 432 << 20, 4 << 30} {
			db, err := database.OpenHere(t.Context(), (&Options{ReserveBytes: reserve, Log: zerolog.Nop()}).database(tiertest.Folder(t)))
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

// A mend waits for room, and says so.
func TestMendWithoutRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := testStore(t)
		breakStore(s, errors.New("a test says so"))
		s.floor = 1 << 62
		if err := s.Mend(); !errors.Is(err, tier.ErrNoSpace) {
			t.Errorf("without room: %v", err)
		}
		if err := s.Close(); !errors.Is(err, ErrBroken) {
			t.Errorf("closed: %v", err)
		}
	})
}

// What a device may not have taken is looked for as at a start, also where the last
// commit is there; the synced part is not.
func TestMendAfterEIO(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := testStore(t)
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
		breakStore(s, fmt.Errorf("a test says so: %w", syscall.EIO))
		if err := s.Mend(); err != nil {
			t.Errorf("all was synced: %v", err)
		}
		commit()
		was := s.use.db
		breakStore(s, errors.New("a test says so"))
		if err := s.Mend(); err != nil {
			t.Errorf("the device has not failed: %v", err)
		}
		select {
		case <-was.Ended():
		default:
			t.Error("the process before is still there")
		}
		if s.use.db == was {
			t.Error("a process that has ended is asked")
		}
		commit()
		breakStore(s, fmt.Errorf("a test says so: %w", syscall.EIO))
		if err := s.Mend(); !errors.Is(err, ErrForgot) {
			t.Errorf("the last commits were not synced: %v", err)
		}
	})
}

// set is a change of one pair.
type set struct{}

func (set) Apply(b *Batch) error { b.Set([]byte("pair"), nil); return nil }
func (set) Committed(error)      {}
