package disk

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dgraph-io/badger/v4"

	"github.com/kvstored/kvstored/tier"
)

// errBroken says that the database is not asked any more.
var errBroken = errors.New("the database failed to write, and is not open again yet")

// errNotOpened says that the database was tried, and may be damaged.
var errNotOpened = errors.New("the database does not open again")

const (
	// mendEvery is how often it is looked whether a database that failed can
	// be opened again. After one that did not open it is eight times as long.
	mendEvery = time.Second
	// maxMends is how many may fail: each leaves behind what Badger had opened.
	maxMends = 3
)

// failed ends the use of the database after a commit that failed: Badger is
// then perhaps without a memtable, and would end the process over the next
// write, or over a read. This is what try is to prevent.
func (s *store) failed(err error) {
	if !s.broken.Swap(true) {
		s.log.Error().Err(err).Str("path", s.dir).Msg("the disk tier's database failed to write; the tier is off until it is open again")
	}
}

// works is an error while the database is not asked.
func (s *store) works() error {
	if s.broken.Load() {
		return errBroken
	}
	return nil
}

// enter is the database, for use until leave.
func (s *store) enter() (*badger.DB, error) {
	s.use.Lock()
	defer s.use.Unlock()
	if err := s.works(); err != nil {
		return nil, err
	}
	s.use.n++
	return s.db, nil
}

func (s *store) leave() {
	s.use.Lock()
	defer s.use.Unlock()
	s.use.n--
}

// idle reports whether nobody uses a database that is broken, and so will not
// before it is mended.
func (s *store) idle() bool {
	s.use.Lock()
	defer s.use.Unlock()
	return s.use.n == 0 && s.broken.Load()
}

// try is enter if the file system takes writes at all, which Badger, whose
// logs are mapped, must not be the one to find out: EROFS, EIO.
func (s *store) try() (*badger.DB, error) {
	db, err := s.enter()
	if err == nil {
		if err = s.beat(); err != nil {
			s.leave()
		}
	}
	return db, err
}

func (s *store) beat() error {
	if _, err := s.pulse.WriteAt([]byte{'\n'}, 0); err != nil {
		return fmt.Errorf("disk: the database's file system takes no writes: %w", err)
	}
	return nil
}

// view runs fn over the records; what Badger panics over in it is an error.
func (s *store) view(fn func(*badger.Txn) error) (err error) {
	db, err := s.enter()
	if err != nil {
		return err
	}
	defer s.leave()
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("badger: %v", r)
		}
	}()
	return db.View(fn)
}

// mend opens a broken database again once its file system takes writes and
// has room. What Badger still has to write it writes first, however often that
// fails, so this can last as long as the trouble does. close waits for it.
func (s *store) mend() error {
	s.life.Lock()
	defer s.life.Unlock()
	if s.life.closed || !s.idle() {
		return nil
	}
	if err := s.beat(); err != nil {
		return err
	}
	if err := s.pulse.Sync(); err != nil {
		return fmt.Errorf("disk: the database's file system takes no writes: %w", err)
	}
	if s.room() < roomAll {
		return fmt.Errorf("disk: the database needs %d bytes free on its file system: %w", s.floor, tier.ErrNoSpace)
	}
	if err := rehearse(s.dir); err != nil {
		return fmt.Errorf("disk: the database's files do not open: %w", err)
	}
	if s.db != nil {
		if err := closeBadger(s.db); err != nil {
			s.log.Warn().Err(err).Msg("the disk tier's database did not close well")
		}
		s.db = nil
	}
	counted, err := s.tries.begin() // it may end the process, as at a start
	if err != nil {
		return err
	}
	db, err := openBadger(s.o)
	if !s.unreadable.Load() {
		s.tries.set(counted)
	}
	if err != nil {
		return fmt.Errorf("%w: %s: %w", errNotOpened, s.dir, err)
	}
	s.db = db
	s.broken.Store(false)
	s.log.Info().Str("path", s.dir).Msg("the disk tier's database is open again")
	return nil
}

// closeBadger turns what Badger panics over in this goroutine into an error.
func closeBadger(db *badger.DB) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("badger: %v", r)
		}
	}()
	return db.Close()
}

// mend keeps the database open until ctx ends, or until it has not opened
// maxMends times. One that does not let go is left behind then.
func (t *Tier) mend(ctx context.Context) error {
	for failed := 0; failed < maxMends; {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(mendEvery << (3 * failed)):
		}
		if !t.db.broken.Load() {
			continue
		}
		mended := make(chan error, 1)
		go func() { mended <- t.db.mend() }()
		var err error
		select {
		case err = <-mended:
		case <-ctx.Done():
			return nil
		}
		if errors.Is(err, errNotOpened) {
			failed++
			t.log.Error().Err(err).Int("failed", failed).Int("of", maxMends).Msg("the disk tier's database does not open again")
		} else if err != nil {
			t.trouble.Warn().Err(err).Msg("the disk tier's database is not opened again yet")
		}
	}
	t.log.Error().Msg("the disk tier's database is not tried any more; the tier is off until the next start")
	return nil
}
