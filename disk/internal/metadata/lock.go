package metadata

import (
	"strings"
	"time"
)

// lockRefused is in Badger's error for a database that another process has
// open; the errno is not.
const lockRefused = "Cannot acquire directory lock"

// A locked database is opened again after lockPause, then after twice as long, up to
// lockPauseMax: each opening starts a process.
const (
	lockPause    = 10 * time.Millisecond
	lockPauseMax = 250 * time.Millisecond
)

// isLocked tells the error of a database that another process has open.
func isLocked(err error) bool { return err != nil && strings.Contains(err.Error(), lockRefused) }

// openAfterLast is open once the process that had the database before has ended, or after
// Options.Await. The kernel ends that of a daemon that was killed a moment after the
// daemon, and later on a busy machine.
func (s *Store) openAfterLast() error {
	end := time.Now().Add(s.o.Await)
	for pause := lockPause; ; pause = min(2*pause, lockPauseMax) {
		err := s.open()
		if !isLocked(err) || time.Now().After(end) {
			return err
		}
		if pause == lockPause {
			s.o.Log.Info().Str("path", s.Dir).Stringer("at_most", s.o.Await).Msg("another process has the disk tier's database; its end is awaited")
		}
		time.Sleep(pause)
	}
}
