package database

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/dgraph-io/badger/v4"
)

// How long a measurement of the files holds: the bytes committed meanwhile are
// added to it.
const (
	measureEvery = 10 * time.Millisecond
	measureBytes = 128 << 10
)

// tableEnd is what the last block of a table's file takes at most beyond its
// length.
const tableEnd = 4 << 10

// size is what the database holds.
type size struct {
	mu struct {
		sync.Mutex
		bytes int64 // at the last measurement
		added int64 // by commits since, twice their length
		at    time.Time
	}
}

// held is how many bytes the tables, the logs and the small files hold: each
// record counts where it lies, in a log or in a table. A flush or a compaction
// writes all it reads once more at most before it removes that, so the files
// never take more than twice as much. Data that is in a table and still in its
// log counts twice.
func (s *Server) held() int64 {
	z := &s.size.mu
	z.Lock()
	defer z.Unlock()
	if time.Since(z.at) < measureEvery && z.added < measureBytes {
		return z.bytes + z.added
	}
	z.bytes, z.added, z.at = s.measure(), 0, time.Now()
	return z.bytes
}

func (s *Server) measure() (total int64) {
	for _, level := range s.db.Levels() {
		total += level.Size + int64(level.NumTables)*tableEnd
	}
	names, _ := os.ReadDir(s.dir) // what cannot be listed has been open until now
	for _, name := range names {
		if filepath.Ext(name.Name()) == ".sst" {
			continue // of the levels, or on its way there or out
		}
		if info, err := name.Info(); err == nil {
			if st, ok := info.Sys().(*syscall.Stat_t); ok {
				total += int64(st.Blocks) * 512
			}
		}
	}
	return total
}

// flushKey is a key of this package's own.
var flushKey = []byte("\x00flush")

// compact writes the logs to tables and merges all levels into one, which drops
// deleted and overwritten records. A deletion that is still in a log hides its
// record, and keeps it. Badger has no call that empties the logs but the one
// that drops a prefix, and does nothing for a prefix without a key; it refuses
// commits meanwhile, so these wait.
func (s *Server) compact() error {
	s.compacting.Lock() // Badger cannot do two at a time
	defer s.compacting.Unlock()
	s.writing.Lock()
	err := s.db.Update(func(txn *badger.Txn) error { return txn.Set(flushKey, nil) })
	if err == nil {
		err = s.db.DropPrefix(flushKey)
	}
	s.writing.Unlock()
	if err == nil {
		err = s.db.Flatten(1)
	}
	s.size.mu.Lock()
	s.size.mu.at = time.Time{} // the next question is measured, however soon it comes
	s.size.mu.Unlock()
	return err
}

// appendHeld appends what the database holds to an answer.
func (s *Server) appendHeld(c *conn) {
	c.out = binary.LittleEndian.AppendUint64(c.out, uint64(s.held()))
}

// HeldBytes is what tables, logs and small files of the database hold, as the
// last commit found it. The files take up to twice as much while it flushes or
// compacts, and no more.
func (d *DB) HeldBytes() int64 { return d.held.Load() }

// Measure is HeldBytes as it is now.
func (d *DB) Measure() (held int64, err error) {
	err = d.ask(opSize, true, nil, func(f *fields) {
		if b := f.take(8); b != nil {
			held = int64(binary.LittleEndian.Uint64(b))
		}
	})
	return held, err
}

// Compact drops deleted and overwritten records. It takes as long as writing the
// database once; reads and commits wait for the first part of that, in which the
// logs become tables.
func (d *DB) Compact() error { return d.ask(opCompact, false, nil, nil) }
