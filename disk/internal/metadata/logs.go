package metadata

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"

	"github.com/kvstored/kvstored/disk/internal/folders"
	"github.com/kvstored/kvstored/internal/database"
)

const (
	maxLogs  = 4 // that are noted, of which Badger has two at a time
	logBytes = 8 + 8
)

// logs are the youngest logs of Badger's memtables, oldest first, each with the
// number of the last commit before it began. That commit is in the log before,
// or in a table made of it, for as long as the log is there: its number is a
// version of the commits key, and no compaction drops it, because any later one
// lies in the log. Badger reads a log up to where it is damaged, and takes a
// table for none that its manifest does not list, without a word; either way it
// is that commit that is missing.
type logs [maxLogs]logStart

// wasThere says that a log was there at a start, which has not got through yet.
const wasThere = 1 << 63

type logStart struct {
	id    uint64 // in the name of the file, and wasThere; 0 = none
	after uint64
}

func logPath(dir string, id uint64) string { return filepath.Join(dir, fmt.Sprintf("%05d.mem", id)) }

// begin forgets the logs that are gone, and notes the one that Badger has made at
// its opening, which begins behind a commit. Their numbers may start over.
func (l *logs) begin(dir string, after uint64) {
	last := lastLog(dir)
	old := *l
	*l = logs{}
	for _, x := range old {
		x.id &^= wasThere
		if there, err := folders.Exists(logPath(dir, x.id)); x.id > 0 && x.id < last && there && err == nil {
			l.push(x)
		}
	}
	l.push(logStart{last, after})
}

// extend adds the logs that have come since, which begin behind a commit.
func (l *logs) extend(dir string, after uint64) {
	for {
		next := l[maxLogs-1].id + 1
		if _, err := os.Stat(logPath(dir, next)); err != nil {
			return
		}
		l.push(logStart{next, after})
	}
}

func (l *logs) push(x logStart) {
	copy(l[:], l[1:])
	l[maxLogs-1] = x
}

// lastLog is the highest number of a log in dir.
func lastLog(dir string) (last uint64) {
	paths, _ := filepath.Glob(filepath.Join(dir, "*.mem")) // the pattern is a good one
	for _, path := range paths {
		var id uint64
		if _, err := fmt.Sscanf(filepath.Base(path), "%05d.mem", &id); err == nil {
			last = max(last, id)
		}
	}
	return last
}

func parseLogs(b []byte) (l logs) {
	for i := range l {
		l[i] = logStart{binary.LittleEndian.Uint64(b[i*logBytes:]), binary.LittleEndian.Uint64(b[i*logBytes+8:])}
	}
	return l
}

func (l *logs) put(b []byte) {
	for i, x := range l {
		binary.LittleEndian.PutUint64(b[i*logBytes:], x.id)
		binary.LittleEndian.PutUint64(b[i*logBytes+8:], x.after)
	}
}

// findLogs notes which of the logs are there. It is asked before Badger opens
// the database, which makes tables of them. Where that start does not get through,
// the next one takes them for there too.
func (w *witness) findLogs() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.found = w.found[:0]
	for i := range w.mu.logs {
		x := &w.mu.logs[i]
		if x.id == 0 || x.after == 0 || w.boot != bootID() && x.after > w.mu.synced {
			continue // a power failure may have taken it
		}
		there, err := folders.Exists(logPath(w.dir, x.id))
		if x.id&wasThere == 0 && (!there || err != nil) {
			continue
		}
		x.id |= wasThere
		w.found = append(w.found, x.after)
	}
	if len(w.found) > 0 {
		_ = w.write() // one that is behind says less
	}
}

// checkLogs is an error when the last commit before a log is gone, and the first
// one in it is there.
func (s *Store) checkLogs(db *database.DB) error {
	var numbers [][]byte
	for _, n := range s.witness.found {
		numbers = append(numbers, binary.LittleEndian.AppendUint64(nil, n), binary.LittleEndian.AppendUint64(nil, n+1))
	}
	if len(numbers) == 0 {
		return nil
	}
	has, err := db.Has(database.CommitsKey(), numbers)
	if err != nil {
		return err
	}
	for i, n := range s.witness.found {
		if !has[2*i] && has[2*i+1] {
			return fmt.Errorf("%w: number %d, before its log, is gone", errLost, n)
		}
	}
	return nil
}
