package database

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/options"
)

// badgerOptions suit records of about 120 bytes: memtables as small as they are
// asked to be, no caches (uncompressed tables are read through their mapping),
// and values in the tree, where compaction reclaims them.
//
// SyncWrites is off: a commit lies in the page cache of a mapped log and
// survives a kill; Sync makes it survive a power failure.
func badgerOptions(o *Options) badger.Options {
	b := badger.DefaultOptions(o.Dir)
	b.MemTableSize = o.MemTableBytes
	b.NumMemtables = 2
	b.NumLevelZeroTables = 2 // what they hide is not dropped yet
	b.NumLevelZeroTablesStall = 6
	b.NumCompactors = 2 // the least it takes
	b.ValueThreshold = o.MaxValueBytes + 1
	b.ValueLogFileSize = 1 << 20 // stays empty
	b.NumVersionsToKeep = 1
	b.Compression = options.None // keys are hashes
	b.BlockCacheSize = 0
	b.IndexCacheSize = 0
	b.MetricsEnabled = false // process-wide expvars
	b.DetectConflicts = false
	b.ChecksumVerificationMode = options.OnTableAndBlockRead
	b.SyncWrites = false
	return b
}

// checkOptions refuses what Badger would end the process over.
func checkOptions(o badger.Options) error {
	switch {
	case o.NumCompactors == 1,
		o.NumLevelZeroTablesStall <= o.NumLevelZeroTables,
		o.MemTableSize*15/100 <= o.ValueThreshold,
		o.ValueThreshold > 1<<20,
		o.ValueLogFileSize < 1<<20 || o.ValueLogFileSize >= 2<<30,
		o.BlockCacheSize == 0 && o.Compression != options.None:
		return fmt.Errorf("the options do not fit together: %+v", o)
	}
	return nil
}

// openBadger turns what Badger panics over in this goroutine into an error. A
// log that Badger had just made and could not size holds nothing, and would
// keep it from opening.
func (s *Server) openBadger(o *Options) (db *badger.DB, err error) {
	defer func() {
		if r := recover(); r != nil {
			db, err = nil, fmt.Errorf("%v", r)
		}
	}()
	b := badgerOptions(o)
	b.Logger = badgerLog{s}
	if err := checkOptions(b); err != nil {
		return nil, err
	}
	values, _ := filepath.Glob(filepath.Join(o.Dir, "*.vlog")) // they hold nothing here, and Badger makes one at each opening
	for _, path := range append(logs(o.Dir), values...) {
		if info, err := os.Stat(path); err == nil && info.Size() == 0 {
			if err := os.Remove(path); err != nil {
				return nil, err
			}
		}
	}
	if err := checkManifest(o.Dir); err != nil {
		return nil, err
	}
	if n, err := takeBackUnfinished(o.Dir); err != nil {
		return nil, err
	} else if n > 0 {
		s.say(logInfo, "a compaction of %d tables did not end, and is taken back", []any{n})
	}
	s.keepPrivate(o.Dir)
	if s.Try != nil {
		if err := s.Try(o.Dir); err != nil {
			return nil, err
		}
	}
	if err := s.watched.watch(o.Dir, s.end); err != nil {
		return nil, err
	}
	if err := s.hook(o.Dir, s.watched.sync); err != nil {
		return nil, err
	}
	if db, err = badger.Open(b); err != nil {
		return nil, err // Badger returns a part of one
	}
	return db, nil
}

// keepPrivate takes the rights of other users from a database that an earlier
// version has made, or a user copied. Where that is refused it says so.
func (s *Server) keepPrivate(dir string) {
	_ = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && (e.IsDir() || e.Type().IsRegular()) {
			var info fs.FileInfo
			if info, err = e.Info(); err == nil && info.Mode().Perm()&0o077 != 0 {
				err = os.Chmod(path, info.Mode().Perm()&0o700)
			}
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // a folder that is not there yet will be made right
			s.say(logWarn, "other users may have rights in the database: %v", []any{err})
		}
		return nil
	})
}

// logs are those of the memtables.
func logs(dir string) []string {
	paths, _ := filepath.Glob(filepath.Join(dir, "*.mem")) // the pattern is a good one
	return paths
}

// sync makes all commits survive a power failure. The kernel tells only one of
// the callers that sync a file that pages of it are lost, so there is one sync at
// a time, and none succeeds after one that failed.
func (s *Server) sync() error {
	s.syncing.Lock()
	defer s.syncing.Unlock()
	if s.unsynced == nil {
		s.unsynced = s.syncFiles()
	}
	return s.unsynced
}

// syncFiles is one sync. Badger's own leaves out the logs of memtables that are
// just being flushed.
func (s *Server) syncFiles() error {
	if err := s.awaitTables(); err != nil {
		return err
	}
	for _, path := range logs(s.dir) {
		if err := syncPath(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("sync %s: %w", path, err)
		}
	}
	if err := s.db.Sync(); err != nil {
		return err
	}
	if err := syncPath(filepath.Join(s.dir, badger.ManifestFilename)); err != nil {
		return err
	}
	return syncPath(s.dir)
}

const (
	tablesTimeout = 30 * time.Second
	tablesPoll    = 5 * time.Millisecond
)

// awaitTables waits until what the logs of an earlier process hold is in tables,
// which are on the device by then. Their pages may never have come there, which
// the kernel may have told that process, and tells once.
func (s *Server) awaitTables() error {
	for end := time.Now().Add(tablesTimeout); ; time.Sleep(tablesPoll) {
		i := slices.IndexFunc(s.old, func(path string) bool {
			_, err := os.Stat(path)
			return !errors.Is(err, fs.ErrNotExist)
		})
		if i < 0 {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("sync: what %s holds is not in a table yet", s.old[i])
		}
	}
}

func syncPath(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // nothing was written through it
	return f.Sync()
}

// badgerLog writes Badger's messages where listen reads them, and tells watched
// of compactions.
type badgerLog struct{ s *Server }

// Errorf also ends a flush that fails for ever after the database was killed.
func (l badgerLog) Errorf(f string, a ...any) {
	l.s.say(logWarn, f, a)
	if f == retryFormat && l.s.Gone != nil {
		l.s.Gone()
	}
}

func (l badgerLog) Infof(f string, a ...any) { l.s.say(logInfo, f, a) }

func (l badgerLog) Warningf(f string, a ...any) {
	l.s.say(logWarn, f, a)
	if by, ok := compactor(a); ok && f == failedFormat {
		l.s.watched.failed(by, a[1])
	}
}

// Debugf writes nothing: there are several lines a commit.
func (l badgerLog) Debugf(f string, a ...any) {
	if by, ok := compactor(a); ok && f == collectedFormat {
		keys, _ := a[1].(uint64) // of another type it is a table too few, which ends the process
		l.s.watched.begin(by, keys)
	}
}

// compactor is the number of the compactor that a message is of.
func compactor(a []any) (by int, ok bool) {
	if len(a) > 1 {
		by, ok = a[0].(int)
	}
	return by, ok
}

// say also ends the process over what a device would not take. Badger goes on
// after a flush or a compaction that failed, as if the list of tables that it
// has in memory were the one in the manifest, and would lose tables with the
// next copy of that; a new process reads what the manifest says.
func (s *Server) say(level, f string, a []any) {
	text := bytes.TrimSpace(fmt.Appendf(nil, f, a...))
	text = bytes.ReplaceAll(text, []byte("\n"), []byte("; "))
	_, _ = fmt.Fprintf(s.Words, "%s%s%s\n", logMark, level, text) // a parent that is gone does not miss it
	if level == logWarn && bytes.Contains(text, []byte(syscall.EIO.Error())) {
		s.end(syscall.EIO.Error())
	}
}

// end ends the process. The last line is no message of Badger's, so that it
// tells what the process ended over.
func (s *Server) end(why string) {
	_, _ = fmt.Fprintln(s.Words, why)
	s.Exit()
}
