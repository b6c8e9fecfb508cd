package metadata

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/kvstored/kvstored/internal/test/logtest"
)

// TestLastProcessIsAwaited: a database that another process has open is opened when that
// has ended. Where it does not end in time the error says what has the database, and no
// opening counts against it.
func TestLastProcessIsAwaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := testOptions(t)
		last, err := Open(o)
		if err != nil {
			t.Fatal(err)
		}
		for range maxFailedStarts + 1 {
			if s, err := Open(o); !isLocked(err) || !IsTrouble(err) {
				t.Fatalf("a database that another process has open: %v, %v; want that it is locked", s, err)
			}
		}
		var log logtest.Book
		o.Await, o.Log = time.Hour, zerolog.New(&log)
		opened := make(chan error, 1)
		go func() {
			s, err := Open(o)
			if err == nil {
				err = s.Close()
			}
			opened <- err
		}()
		time.Sleep(time.Minute)
		select {
		case err := <-opened:
			t.Fatalf("it is not awaited: %v", err)
		default:
		}
		if !strings.Contains(log.String(), "its end is awaited") {
			t.Errorf("it is not said: %s", log.String())
		}
		if err := last.Close(); err != nil {
			t.Fatal(err)
		}
		if err := <-opened; err != nil {
			t.Errorf("after its end: %v", err)
		}
	})
}
