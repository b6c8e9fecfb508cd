package disk

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/options"
	"github.com/rs/zerolog"

	"github.com/kvstored/kvstored/internal/record"
	"github.com/kvstored/kvstored/key"
)

const (
	storeName   = "badger"
	damagedName = "badger.damaged" // what did not open; one is kept for whoever wants to look
	startsName  = "kvstored.starts"

	// maxFailedStarts in a row mean that the database ends the process while
	// it is opened or read. A few are allowed, because a kill does the same.
	maxFailedStarts = 3

	// lockRefused is in what Badger says of a database that somebody has open;
	// the errno is not.
	lockRefused = "Cannot acquire directory lock"
)

// store is the database of records. All its methods but the commits are reads.
type store struct {
	dir   string // of Badger itself
	meta  string
	o     badger.Options
	db    *badger.DB // between enter and leave, once others may be using it
	floor int64      // file system space below which nothing is written
	tries attempts
	log   zerolog.Logger
	pulse *os.File // beside it; whether it can be written to is tried before each commit

	unreadable atomic.Bool // the next start is to move it aside
	broken     atomic.Bool // a commit failed; see failed

	use struct {
		sync.Mutex
		n int // who is using db
	}
	life struct { // held while it is opened again or closed, however long
		sync.Mutex
		closed bool
	}
}

// storeOptions sizes Badger for records of about 120 bytes: memtables as
// small as the reserve wants, no caches (uncompressed tables are read through
// their mapping), and values in the tree, where compaction reclaims them.
//
// SyncWrites is off: what is committed lies in the page cache of a mapped
// log and survives a kill; Sync makes it survive a power failure.
func storeOptions(dir string, reserve int64, log zerolog.Logger) badger.Options {
	o := badger.DefaultOptions(dir)
	o.MemTableSize = memtableBytes(reserve)
	o.NumMemtables = 2
	o.NumLevelZeroTables = 3
	o.NumLevelZeroTablesStall = 8
	o.NumCompactors = 2 // the least it takes
	o.ValueThreshold = maxInlineBytes + 1
	o.ValueLogFileSize = 1 << 20 // stays empty
	o.NumVersionsToKeep = 1
	o.Compression = options.None // keys are hashes
	o.BlockCacheSize = 0
	o.IndexCacheSize = 0
	o.MetricsEnabled = false // process-wide expvars
	o.DetectConflicts = false
	o.ChecksumVerificationMode = options.OnTableAndBlockRead
	o.SyncWrites = false
	o.Logger = storeLog{log}
	return o
}

// memtableBytes keeps two memtables, their logs and eight level-zero tables
// within the reserve.
func memtableBytes(reserve int64) int64 { return min(max(reserve/16, 1<<20), 16<<20) }

const (
	minReserveBytes  = 4 << 20
	minCapacityBytes = 16 << 20
)

// checkStoreOptions refuses what Badger would end the process over.
func checkStoreOptions(o badger.Options) error {
	switch {
	case o.NumCompactors == 1,
		o.NumLevelZeroTablesStall <= o.NumLevelZeroTables,
		o.MemTableSize*15/100 <= o.ValueThreshold,
		o.ValueThreshold > 1<<20,
		o.ValueLogFileSize < 1<<20 || o.ValueLogFileSize >= 2<<30,
		o.BlockCacheSize == 0 && o.Compression != options.None:
		return fmt.Errorf("disk: Badger options do not fit together: %+v", o)
	}
	return nil
}

// openStore opens the database under meta, in which pulse is a file of any
// content. One that is damaged is moved aside, loudly, and replaced by an empty
// one. One that cannot be opened for want of files, rights, memory or room is
// not damaged: that is an error, and nothing is lost.
func openStore(meta string, pulse *os.File, reserve int64, log zerolog.Logger) (*store, error) {
	dir := filepath.Join(meta, storeName)
	o := storeOptions(dir, reserve, log)
	if err := checkStoreOptions(o); err != nil {
		return nil, err
	}
	s := &store{dir: dir, meta: meta, o: o, log: log, pulse: pulse, tries: attempts{filepath.Join(meta, startsName)}}
	s.floor = storeFloor(reserve)
	if err := canOpen(meta, s.floor); err != nil {
		return nil, err
	}
	failed, err := s.tries.begin()
	if err != nil {
		return nil, err
	}
	if failed >= maxFailedStarts {
		err = fmt.Errorf("%d starts in a row did not get through it", failed)
	} else if s.db, err = openBadger(o); err == nil {
		return s, nil
	} else if isEnvironment(err) || strings.Contains(err.Error(), lockRefused) {
		s.tries.set(failed) // no fault of the database
		return nil, fmt.Errorf("disk: open %s: %w", dir, err)
	}
	log.Error().Err(err).Str("path", dir).Str("moved_to", filepath.Join(meta, damagedName)).
		Msg("the disk tier's database is damaged; it is moved aside and the tier starts empty")
	if err := moveAside(meta); err != nil {
		return nil, err
	}
	if s.db, err = openBadger(o); err != nil {
		return nil, fmt.Errorf("disk: open new %s: %w", dir, err)
	}
	return s, nil
}

// storeFloor is the file system space below which a database with so much set
// aside for it writes nothing.
func storeFloor(reserve int64) int64 { return 4*memtableBytes(reserve) + 16<<20 }

// canOpen is an error where Badger had better not be asked to open its database
// under meta, which may be yet to make: its logs are mapped, so that a full file
// system ends the process.
func canOpen(meta string, floor int64) error {
	dir := filepath.Join(meta, storeName)
	there, err := existing(meta)
	if err != nil {
		return fmt.Errorf("disk: open %s: %w", dir, err)
	}
	switch free, err := availableBytes(there); {
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

// openBadger turns what Badger panics over in this goroutine into an error. A
// log that Badger had just made and could not size holds nothing, and would
// keep it from opening.
func openBadger(o badger.Options) (db *badger.DB, err error) {
	defer func() {
		if r := recover(); r != nil {
			db, err = nil, fmt.Errorf("badger: %v", r)
		}
	}()
	logs, _ := filepath.Glob(filepath.Join(o.Dir, "*.mem"))
	for _, path := range logs {
		if info, err := os.Stat(path); err == nil && info.Size() == 0 {
			if err := os.Remove(path); err != nil {
				return nil, err
			}
		}
	}
	return badger.Open(o)
}

func moveAside(meta string) error {
	to := filepath.Join(meta, damagedName)
	if err := os.RemoveAll(to); err != nil {
		return fmt.Errorf("disk: remove the last damaged database: %w", err)
	}
	if err := os.Rename(filepath.Join(meta, storeName), to); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("disk: move the damaged database aside: %w", err)
	}
	return nil
}

// room looks how much may be written.
func (s *store) room() roomLeft {
	switch free, err := availableBytes(s.meta); {
	case err != nil || free < s.floor/2:
		return roomNone
	case free < s.floor:
		return roomDeletes
	}
	return roomAll
}

// entry reads one record. found is false when there is none that can be read.
func (s *store) entry(k key.Key, e *record.Entry) (found bool, err error) {
	dbKey := record.EntryKey(k)
	err = s.view(func(txn *badger.Txn) error {
		item, err := txn.Get(dbKey[:])
		if err != nil {
			return err
		}
		return item.Value(func(v []byte) error { return record.DecodeEntry(e, dbKey[:], v) })
	})
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, badger.ErrKeyNotFound), errors.Is(err, record.ErrDamaged), errors.Is(err, record.ErrNewer):
		return false, nil
	}
	return false, fmt.Errorf("disk: read record: %w", err)
}

// payload hands an inline payload to fn, which must copy it.
func (s *store) payload(k key.Key, fn func([]byte) error) error {
	dbKey := record.PayloadKey(k)
	return s.view(func(txn *badger.Txn) error {
		item, err := txn.Get(dbKey[:])
		if err != nil {
			return err
		}
		return item.Value(fn)
	})
}

// scan calls fn for every entry record, damaged ones included, in key order.
func (s *store) scan(ctx context.Context, fn func(k, v []byte) error) error {
	return s.view(func(txn *badger.Txn) error {
		o := badger.DefaultIteratorOptions
		o.PrefetchValues = false // they lie beside the keys
		o.Prefix = record.EntryPrefix()
		it := txn.NewIterator(o)
		defer it.Close()
		for it.Rewind(); it.Valid(); it.Next() {
			if err := ctx.Err(); err != nil {
				return err
			}
			item := it.Item()
			if err := item.Value(func(v []byte) error { return fn(item.Key(), v) }); err != nil {
				return err
			}
		}
		return nil
	})
}

// isEmpty reports whether there is no entry record.
func (s *store) isEmpty() (empty bool, err error) {
	stop := errors.New("stop")
	err = s.scan(context.Background(), func(_, _ []byte) error { return stop })
	if err == stop {
		return false, nil
	}
	return err == nil, err
}

// sync makes what is committed survive a power failure. Badger's own Sync
// leaves out the logs of memtables that are just being flushed.
func (s *store) sync() error {
	logs, err := filepath.Glob(filepath.Join(s.dir, "*.mem"))
	if err != nil {
		return err
	}
	for _, path := range logs {
		if err := syncPath(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("disk: sync %s: %w", path, err)
		}
	}
	db, err := s.enter()
	if err != nil {
		return err
	}
	defer s.leave()
	if err := db.Sync(); err != nil {
		return fmt.Errorf("disk: sync badger: %w", err)
	}
	return syncPath(s.dir)
}

func syncPath(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // nothing was written through it
	return f.Sync()
}

// bytes is what the database and a damaged predecessor occupy.
func (s *store) bytes() (total int64) {
	for _, dir := range []string{s.dir, filepath.Join(s.meta, damagedName)} {
		_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
			if err != nil {
				return nil //nolint:nilerr // files come and go
			}
			if info, err := d.Info(); err == nil {
				total += allocatedBytes(info)
			}
			return nil
		})
	}
	return total
}

func (s *store) close() error {
	s.life.Lock()
	defer s.life.Unlock()
	s.life.closed = true
	s.succeeded()
	if s.broken.Load() {
		return fmt.Errorf("%w: it is left as a crash would leave it", errBroken)
	}
	return s.db.Close()
}

// succeeded says that this start got through.
func (s *store) succeeded() {
	if !s.unreadable.Load() {
		s.tries.succeeded()
	}
}

// giveUp makes the next start begin with an empty database. If that cannot be
// written the next start tries once more.
func (s *store) giveUp() {
	s.unreadable.Store(true)
	s.tries.set(maxFailedStarts)
}

// storeLog passes Badger's messages on. What it calls information is detail here.
type storeLog struct{ log zerolog.Logger }

func (l storeLog) Errorf(f string, a ...any)   { l.log.Warn().Msgf("badger: "+f, a...) }
func (l storeLog) Warningf(f string, a ...any) { l.log.Warn().Msgf("badger: "+f, a...) }
func (l storeLog) Infof(f string, a ...any)    { l.log.Debug().Msgf("badger: "+f, a...) }
func (l storeLog) Debugf(string, ...any)       {} // several lines a commit

// now is the time as records keep it.
func now() uint32 { return uint32(time.Now().Unix()) }
