package disk

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/kvstored/kvstored/internal/database"
	"github.com/kvstored/kvstored/tier"
)

// testStore is a store of its own, which nothing mends but the test.
func testStore(t testing.TB) *store {
	t.Helper()
	dir := t.TempDir()
	f, err := os.Create(filepath.Join(dir, "pulse"))
	if err != nil {
		t.Fatal(err)
	}
	s, err := openStore(storeOptions{Meta: dir, Pulse: f, ReserveBytes: 16 << 20, Patience: time.Minute, Log: zerolog.Nop(), Trouble: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.close(); err != nil && !errors.Is(err, errBroken) {
			t.Error(err)
		}
		_ = f.Close()
	})
	return s
}

// Whatever is set aside for it, Badger takes the options.
func TestReserves(t *testing.T) {
	for _, reserve := range []int64{12 << 20, 16 << 20, 432 << 20, 4 << 30} {
		db, err := database.Open(t.Context(), (&storeOptions{ReserveBytes: reserve, Log: zerolog.Nop()}).database(t.TempDir()))
		if err != nil {
			t.Fatalf("reserve %d: %v", reserve, err)
		}
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}
}

// free is a budget without an end.
type free struct{}

func (free) claim(int64) bool                      { return true }
func (free) claimAnyway(int64)                     {}
func (free) settle(int64)                          {}
func (free) tight() bool                           { return false }
func (free) compacted(func() (int64, error)) error { return nil }
func (free) room() roomLeft                        { return roomAll }

// A mend waits for room, and says so.
func TestMendWithoutRoom(t *testing.T) {
	s := testStore(t)
	s.failed(s.use.db, errors.New("a test says so"))
	s.floor = 1 << 62
	if err := s.mend(); !errors.Is(err, tier.ErrNoSpace) {
		t.Errorf("without room: %v", err)
	}
	if err := s.close(); !errors.Is(err, errBroken) {
		t.Errorf("closed: %v", err)
	}
}
