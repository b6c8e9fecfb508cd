package metadata

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/rs/zerolog"

	"github.com/kvstored/kvstored/disk/internal/folders"
	"github.com/kvstored/kvstored/internal/database"
)

// The files beside the database, in Options.Meta, and how often it is opened.
const (
	DamagedName = "badger.damaged"   // the last database that did not open, kept for a person to look at
	StartsName  = "kvstored.starts"  // how many starts in a row did not get through
	RebuildName = "kvstored.rebuild" // while not all of a lost database has been made anew from the headers

	// maxFailedStarts in a row mean that the database ends the process while
	// it is opened or read. A few are allowed, because a kill does the same.
	maxFailedStarts = 3
)

// Store is the database of records, which runs in a process of its own. All its
// methods but the commits are reads.
type Store struct {
	Dir string // of Badger itself; not to be changed
	o   Options

	witness *witness
	db      *database.DB
	before  int       // openings in a row before this one that did not get through
	since   time.Time // when it was opened

	why atomic.Pointer[error] // why db is not asked any more; see failed
}

// Options configure a store. All are required.
type Options struct {
	Meta         *folders.Folder // in which Badger's lies
	Headers      bool            // there are some to survey, where nothing says that the database has all it had
	Pulse        io.WriterAt     // a file in it, of any content, written to before each commit
	ReserveBytes int64           // set aside for the database
	Patience     time.Duration   // after which a process that does not answer is ended
	Await        time.Duration   // for the process of an earlier daemon, which may yet have to end
	Database     database.Opener
	Free         func(dir string) (int64, error) // bytes that may yet be allocated there
	Log          zerolog.Logger                  // for what happens once
}

// MaxInlineBytes bounds a payload in the database: a value must stay far below
// the 15 % of a memtable that Badger takes in one transaction.
const MaxInlineBytes = 64 << 10

// database are the options of Badger.
func (o *Options) database(dir string) database.Options {
	return database.Options{Dir: dir, MemTableBytes: MemtableBytes(o.ReserveBytes), MaxValueBytes: MaxInlineBytes, Log: o.Log}
}

// MemtableBytes keeps memtables, which are in their logs, and level-zero tables
// a small part of the reserve. A value of maxInlineBytes needs 437 KiB.
func MemtableBytes(reserve int64) int64 { return min(max(reserve/64, 512<<10), 16<<20) }

// Open opens the database under the folder of o. One that is damaged is
// moved aside, loudly, and replaced by an empty one. One that cannot be opened
// for want of files, rights, memory or room, or because its device fails, is not
// damaged: that is an error, and nothing is lost.
func Open(o Options) (_ *Store, err error) {
	dir := o.Meta.Path(folders.DatabaseName)
	s := &Store{Dir: dir, o: o}
	defer func() {
		if err != nil {
			s.witness.close()
		}
	}()
	if err := Check(o.Meta.Path(""), o.ReserveBytes, o.Free); err != nil {
		return nil, err
	}
	for fresh := false; ; fresh = true {
		s.witness.close()
		if s.witness, err = openWitness(o.Meta); err != nil {
			return nil, err
		}
		if s.witness.blank && o.Headers { // before the opening, which believes the database from then on
			if err := o.Meta.Replace(RebuildName, nil); err != nil {
				return nil, err
			}
		}
		if err = s.openAfterLast(); err == nil {
			return s, nil
		}
		if fresh || !errors.Is(err, ErrDamaged) {
			return nil, fmt.Errorf("disk: open %s: %w", dir, err)
		}
		log := o.Log.Error().Err(err).Str("path", dir).Str("moved_to", o.Meta.Path(DamagedName))
		if s.witness.old > 0 {
			log.Int32("small_payloads_about", s.witness.old)
		}
		log.Msg("the disk tier's database is damaged; it is moved aside and made anew from the headers of the segments, without small payloads, which lay in it")
		if err := moveAside(o.Meta); err != nil {
			return nil, err
		}
		s.Succeeded()
	}
}

// ErrDamaged says that a database is to be moved aside.
var ErrDamaged = errors.New("the database is damaged")

// open starts the process of the database, and counts that. A database that
// Badger refuses, or over which the process has ended too often in a row, is
// damaged.
func (s *Store) open() (err error) {
	if s.before, err = s.beginStart(); err != nil {
		return err
	}
	if s.before >= maxFailedStarts {
		return fmt.Errorf("%w: %d starts in a row did not get through it", ErrDamaged, s.before)
	}
	if s.db, err = s.start(); err == nil {
		s.since = time.Now()
		return nil
	}
	var no database.Refused
	if err = s.diagnose(err); !isItself(err) {
		_ = s.setFailed(s.before) // it was no fault of the database
	} else if errors.As(err, &no) || errors.Is(err, errLost) {
		err = fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return err
}

// start is a database that has all it had.
func (s *Store) start() (*database.DB, error) {
	if err := s.witness.checkTables(); err != nil {
		return nil, err
	}
	s.witness.findLogs()
	db, err := s.o.Database(context.Background(), s.o.database(s.Dir))
	if err != nil {
		return nil, err
	}
	if err := s.look(db); err != nil {
		_ = db.Close()
		return nil, err
	}
	s.witness.sawTables()
	return db, nil
}

// diagnose adds the cause to an error of the database: its files are read, and
// the error of a device that cannot read one is the cause of Badger's (which says
// of a manifest that cannot be read that it is none).
func (s *Store) diagnose(err error) error {
	if !isItself(err) {
		return err
	}
	if device := readAll(s.Dir); device != nil {
		return fmt.Errorf("%w: %s", device, err.Error())
	}
	return err
}

// isItself tells an error that is the fault of the database from one that is
// the machine's, or of another process that has it open.
func isItself(err error) bool {
	var no database.Refused
	var end *database.Death
	return (errors.As(err, &no) || errors.As(err, &end) || errors.Is(err, errLost)) && !IsEnvironment(err) && !isLocked(err)
}

// IsTrouble tells an error that a later opening may not meet: what the machine
// has against it, and a database that is damaged or ends its process.
func IsTrouble(err error) bool {
	return errors.Is(err, ErrDamaged) || isItself(err) || isLocked(err) || IsEnvironment(err)
}

// FloorBytes is the file system space below which a database with so much set
// aside for it writes nothing.
func FloorBytes(reserve int64) int64 { return 4*MemtableBytes(reserve) + 16<<20 }

// Check is an error where Badger had better not be asked to open its
// database under meta, which may be yet to make, with so much set aside for it:
// its logs are mapped, so that a full file system ends the process.
func Check(meta string, reserve int64, available func(dir string) (int64, error)) error {
	floor := FloorBytes(reserve)
	dir := filepath.Join(meta, folders.DatabaseName)
	there, err := folders.NearestExisting(meta)
	if err != nil {
		return fmt.Errorf("disk: open %s: %w", dir, err)
	}
	switch free, err := available(there); {
	case err != nil:
		return fmt.Errorf("disk: open %s: %w", dir, err)
	case free < floor/2:
		return fmt.Errorf("disk: open %s: %d MiB are free on its file system, it needs %d: %w", dir, free>>20, floor/2>>20, syscall.ENOSPC)
	}
	if err := rehearse(dir); err != nil {
		return fmt.Errorf("disk: open %s: %w", dir, err)
	}
	return nil
}

// moveAside makes room for a new database, which begins without a commit.
func moveAside(meta *folders.Folder) error {
	if err := meta.Replace(RebuildName, nil); err != nil {
		return err
	}
	if err := meta.Remove(WitnessName); err != nil {
		return fmt.Errorf("disk: %w", err)
	}
	if err := meta.RemoveAll(DamagedName); err != nil {
		return fmt.Errorf("disk: remove the last damaged database: %w", err)
	}
	if err := meta.Rename(folders.DatabaseName, DamagedName); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("disk: move the damaged database aside: %w", err)
	}
	return meta.Sync()
}

// Sync makes all commits so far survive a power failure. The kernel says once
// that it could not write a page, and takes it for written from then on, so
// after a sync that failed the next one would prove nothing: the database is
// opened again, which writes what the logs hold to new files.
func (s *Store) Sync() error {
	s.witness.sawTables()
	number, tables := s.witness.last()
	err := s.Works()
	if err == nil {
		if err = s.db.Sync(); err != nil {
			s.failed(err)
		}
	}
	if err != nil {
		return fmt.Errorf("disk: sync the database: %w", err)
	}
	return s.witness.synced(number, tables)
}

// Compact drops deleted and overwritten records.
func (s *Store) Compact() error { return s.ask((*database.DB).Compact) }

// Measure is how many bytes the database holds.
func (s *Store) Measure() (held int64, err error) {
	err = s.ask(func(db *database.DB) error {
		held, err = db.Measure()
		return err
	})
	return held, err
}

// Close ends the database's process, in order where it works. It is called once.
func (s *Store) Close() error {
	defer s.witness.close()
	if why := s.broken(); why != nil {
		s.endBroken(why)
		return fmt.Errorf("%w: %w: it is left as a crash would leave it", ErrBroken, why)
	}
	s.Succeeded()
	err := s.db.Close()
	s.witness.sawTables()
	return err
}

// Kill ends the process of the database, which may take until the kernel lets
// go of it.
func (s *Store) Kill(why error) { s.db.Kill(why) }

// FoundInline says how many payloads of earlier processes the database turned out to hold.
func (s *Store) FoundInline(n int) {
	w := s.witness
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.Inline, w.old = w.mu.Inline-w.old+int32(n), int32(n)
	_ = w.write() // one that is behind tells of fewer
}

// Succeeded says that this start got through.
func (s *Store) Succeeded() { _ = s.setFailed(0) }

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
// daemon, and later on a busy machine. Where the process ends over an opening the next one is
// made at once: these are counted.
func (s *Store) openAfterLast() error {
	end, pause := time.Now().Add(s.o.Await), lockPause
	for {
		err := s.open()
		switch {
		case isLocked(err) && time.Now().Before(end):
			if pause == lockPause {
				s.o.Log.Info().Str("path", s.Dir).Stringer("at_most", s.o.Await).Msg("another process has the disk tier's database; its end is awaited")
			}
			time.Sleep(pause)
			pause = min(2*pause, lockPauseMax)
		case isItself(err) && !errors.Is(err, ErrDamaged):
		default:
			return err
		}
	}
}

// beginStart counts this start, and returns how many before it failed in a row: Badger may end
// the process over a damaged file, and must not do so for ever.
func (s *Store) beginStart() (failed int, err error) {
	text, err := s.o.Meta.Read(StartsName)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, fmt.Errorf("disk: %w", err)
	}
	if strings.Trim(string(text), "x") == "" { // else garbled: that counts for nothing
		failed = len(text)
	}
	return failed, s.setFailed(failed + 1)
}

// setFailed notes how many starts have failed in a row, as so many letters, so that no
// flipped bit raises it.
func (s *Store) setFailed(n int) error {
	if n == 0 {
		return s.o.Meta.Remove(StartsName)
	}
	return s.o.Meta.Replace(StartsName, bytes.Repeat([]byte("x"), n))
}
