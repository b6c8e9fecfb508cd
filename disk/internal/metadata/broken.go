package metadata

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"

	"github.com/kvstored/kvstored/disk/internal/blockio"
	"github.com/kvstored/kvstored/internal/base"
	"github.com/kvstored/kvstored/internal/database"
)

// ErrBroken says that the database is not asked any more.
var ErrBroken = errors.New("the database has failed, and is not open again yet")

const (
	// watchEvery is how often it is looked whether the database still works.
	watchEvery = time.Second
	// SteadyAfter is how long a database must be open for what ends its process
	// then to count as the first failure, not as one more.
	SteadyAfter = 10 * time.Minute
)

// failed ends the use of the database after a commit that failed, and after the
// end of its process: Badger is then perhaps without a memtable, and would end
// the process over the next write, or over a read. Only the first error counts.
func (s *Store) failed(err error) {
	if !s.why.CompareAndSwap(nil, &err) {
		return
	}
	if strings.Contains(err.Error(), syscall.EIO.Error()) {
		s.witness.doubt()
	}
	s.o.Log.Error().Err(err).Str("path", s.Dir).Msg("the disk tier's database failed; the tier is off until it is open again")
}

// Damaged says that the database cannot be read to its end. It is broken from now on,
// and the next opening moves it aside.
func (s *Store) Damaged(err error) { s.failed(fmt.Errorf("%w: %w", ErrDamaged, err)) }

// Works is an error while the database is not asked.
func (s *Store) Works() error {
	if why := s.broken(); why != nil {
		return fmt.Errorf("%w: %w", ErrBroken, why)
	}
	return nil
}

// broken is why the database is not asked; nil where it is.
func (s *Store) broken() error {
	if why := s.why.Load(); why != nil {
		return *why
	}
	return nil
}

// Pid is the id of the database's process, which may have ended.
func (s *Store) Pid() int { return s.db.Pid() }

// ask has fn read. Where that fails over the process the database is broken.
func (s *Store) ask(fn func(*database.DB) error) error {
	err := s.Works()
	if err != nil {
		return err
	}
	if err = fn(s.db); err != nil && database.Ends(err) {
		s.failed(err)
		err = fmt.Errorf("%w: %w", ErrBroken, err)
	}
	return err
}

// try is an error where the database is broken, and where its file system takes no
// writes, which Badger, whose logs are mapped, must not be the one to find out: EROFS, EIO.
func (s *Store) try() error {
	if err := s.Works(); err != nil {
		return err
	}
	if _, err := s.o.Pulse.WriteAt([]byte{'\n'}, 0); err != nil {
		return fmt.Errorf("disk: the database's file system takes no writes: %w", err)
	}
	return nil
}

// Run watches over the database until ctx ends. One that is broken ends it with the
// error: its process has ended, or is ended here because it has not answered for so long.
func (s *Store) Run(ctx context.Context) error {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for base.Await(ctx, tick.C) {
		s.watch()
		if err := s.Works(); err != nil {
			return fmt.Errorf("disk: %w", err)
		}
	}
	return nil
}

func (s *Store) watch() {
	select {
	case <-s.db.Ended():
		s.failed(s.db.Err())
		return
	default:
	}
	s.witness.sawTables()
	if s.db.Hangs(s.o.Patience) {
		err := fmt.Errorf("its process did not answer for %v: %w", s.o.Patience, blockio.ErrHung)
		s.failed(err)
		s.db.Kill(err)
	}
}

// endBroken ends the process of a broken database, and counts an end that was its own
// fault as an opening that did not get through.
func (s *Store) endBroken(why error) {
	s.db.Kill(why)
	if isItself(why) { // until it is known better: reading all files takes longer than an end may
		_ = s.setFailed(s.before + 1)
	}
	switch why = s.diagnose(why); {
	case errors.Is(why, ErrDamaged):
		_ = s.setFailed(maxFailedStarts)
	case !isItself(why):
		_ = s.setFailed(s.before)
	case time.Since(s.since) > SteadyAfter:
		_ = s.setFailed(1)
	default:
		_ = s.setFailed(s.before + 1)
	}
}
