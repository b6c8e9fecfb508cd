package metadata

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"

	"github.com/kvstored/kvstored/disk/internal/blockio"
	"github.com/kvstored/kvstored/internal/database"
	"github.com/kvstored/kvstored/tier"
)

// ErrForgot says that the books of the tier are ahead of its database: it is to
// be opened, and recovered, as at a start.
var ErrForgot = errors.New("the database may lack what its device did not take before it was synced")

// ErrBroken says that the database is not asked any more.
var ErrBroken = errors.New("the database has failed, and is not open again yet")

const (
	// mendEvery is how often it is looked whether a database that failed can
	// be opened again. After each that did not open it is twice as long, up to
	// mendEveryMax.
	mendEvery    = time.Second
	mendEveryMax = 30 * time.Second
	// steadyAfter is how long a database must be open for what ends its process
	// then to count as the first failure, not as one more.
	SteadyAfter = 10 * time.Minute
)

// failed ends the use of a database after a commit that failed, and after the
// end of its process: Badger is then perhaps without a memtable, and would end
// the process over the next write, or over a read.
func (s *Store) failed(db *database.DB, err error) {
	s.use.Lock()
	first := s.use.db == db && s.use.broken == nil
	if first {
		s.use.broken = err
	}
	s.use.Unlock()
	if !first {
		return
	}
	if strings.Contains(err.Error(), syscall.EIO.Error()) {
		s.witness.doubt()
	}
	s.o.Log.Error().Err(err).Str("path", s.Dir).Msg("the disk tier's database failed; the tier is off until it is open again")
}

// Works is an error while the database is not asked.
func (s *Store) Works() error {
	_, err := s.database()
	return err
}

// database returns the database, or why it is broken.
func (s *Store) database() (*database.DB, error) {
	s.use.Lock()
	defer s.use.Unlock()
	if s.use.broken != nil {
		return nil, fmt.Errorf("%w: %w", ErrBroken, s.use.broken)
	}
	return s.use.db, nil
}

// Pid is the id of the database's process, which may have ended.
func (s *Store) Pid() int {
	s.use.Lock()
	defer s.use.Unlock()
	return s.use.db.Pid()
}

// ask has fn read. Where that fails over the process the database is broken.
func (s *Store) ask(fn func(*database.DB) error) error {
	db, err := s.database()
	if err != nil {
		return err
	}
	if err = fn(db); err != nil && database.Ends(err) {
		s.failed(db, err)
		err = fmt.Errorf("%w: %w", ErrBroken, err)
	}
	return err
}

// try is enter if the file system takes writes at all, which Badger, whose
// logs are mapped, must not be the one to find out: EROFS, EIO.
func (s *Store) try() (*database.DB, error) {
	db, err := s.database()
	if err == nil {
		err = s.beat()
	}
	return db, err
}

func (s *Store) beat() error {
	if _, err := s.o.Pulse.WriteAt([]byte{'\n'}, 0); err != nil {
		return fmt.Errorf("disk: the database's file system takes no writes: %w", err)
	}
	return nil
}

// watch finds a database whose process has ended, or has not answered for so
// long that it is ended here.
func (s *Store) watch() {
	db, err := s.database()
	if err != nil {
		return
	}
	select {
	case <-db.Ended():
		s.failed(db, db.Err())
		return
	default:
	}
	s.witness.sawTables()
	if db.Hangs(s.o.Patience) {
		err := fmt.Errorf("its process did not answer for %v: %w", s.o.Patience, blockio.ErrHung)
		s.failed(db, err)
		db.Kill(err)
	}
}

// Mend opens a broken database again if its file system takes writes and has
// room. After close it does nothing, and close waits for it.
func (s *Store) Mend() error {
	s.life.Lock()
	defer s.life.Unlock()
	if s.life.closed || s.Works() == nil {
		return nil
	}
	if err := s.beat(); err != nil {
		return err
	}
	if err := s.o.Pulse.Sync(); err != nil {
		return fmt.Errorf("disk: the database's file system takes no writes: %w", err)
	}
	if free, err := s.o.Free(s.o.Meta.Path("")); err != nil || free < s.floor {
		return fmt.Errorf("disk: the database needs %d bytes free on its file system: %w", s.floor, tier.ErrNoSpace)
	}
	if err := s.endProcess(); err != nil {
		return err
	}
	if err := rehearse(s.Dir); err != nil {
		return fmt.Errorf("disk: the database's files do not open: %w", err)
	}
	if err := s.open(); err != nil {
		return fmt.Errorf("the database does not open again: %s: %w", s.Dir, err)
	}
	s.o.Log.Info().Str("path", s.Dir).Msg("the disk tier's database is open again")
	return nil
}

// endProcess ends the process of a broken database, and tells its openings that were
// its own fault from the others.
func (s *Store) endProcess() error {
	s.use.Lock()
	db, why := s.use.db, s.use.broken
	s.use.Unlock()
	db.Kill(why)
	why = s.diagnose(why)
	select {
	case <-db.Ended():
	case <-s.alive.Done():
		return s.alive.Err()
	case <-time.After(time.Second):
		return errors.New("the database's last process has not ended yet: it hangs in the kernel")
	}
	if !isItself(why) {
		s.uncount()
	} else if time.Since(s.life.since) > SteadyAfter {
		s.tries.set(1)
	}
	return nil
}

// Run keeps the database open until ctx ends. One that is damaged, or lacks what
// its device did not take, ends it with an error.
func (s *Store) Run(ctx context.Context) error {
	for pause := mendEvery; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
		s.watch()
		if s.Works() == nil {
			pause = mendEvery
			continue
		}
		mended := make(chan error, 1)
		go func() { mended <- s.Mend() }()
		var err error
		select {
		case err = <-mended:
		case <-ctx.Done():
			return nil
		}
		switch {
		case errors.Is(err, ErrDamaged), errors.Is(err, ErrForgot):
			return fmt.Errorf("disk: %w", err)
		case err == nil:
			pause = mendEvery
		default:
			pause = min(2*pause, mendEveryMax)
			s.o.Trouble.Warn().Err(err).Stringer("again_in", pause).Msg("the disk tier's database is not opened again yet")
		}
	}
}
