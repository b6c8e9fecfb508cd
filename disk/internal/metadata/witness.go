package metadata

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"sync"

	"github.com/zeebo/xxh3"

	"github.com/kvstored/kvstored/disk/internal/folders"
	"github.com/kvstored/kvstored/internal/database"
)

// WitnessName is the file of a witness.
const WitnessName = "kvstored.commits"

// errLost says that a database opens, but lacks commits that it had.
var errLost = errors.New("the database has lost commits")

// witness counts the commits outside the database, which cuts off a damaged
// log, or forgets tables that a damaged list leaves out, without a word. Commits
// that a power failure takes are no damage: it cannot take synced ones, and the
// machine has another boot since.
//
// The count alone does not do: the newest commits are in a log, which is there
// when older tables are not. So it also notes the manifest, the list of tables,
// which only grows; one that does not begin as it did has lost tables.
//
// And of Badger's logs the newest is there when an older one is not, or is cut
// off: see logs.
//
// The file is noted in little endian and an XXH3-64 of that, 176 bytes, written in place
// after each commit. One that does not match says nothing.
type witness struct {
	file  *os.File
	dir   string   // of the database
	blank bool     // the file said nothing when it was opened
	found []uint64 // see findLogs
	old   int32    // Inline when it was opened

	mu struct {
		sync.Mutex
		noted
		seen os.FileInfo // of Manifest
	}
}

// noted is what a witness has seen.
type noted struct {
	Number, Synced           uint64 // of the last commit, and of the last one that was synced
	Boot                     boot   // of the process that wrote it, then of this one
	Inline                   int32  // payloads in the database, about; 0 = not known
	Manifest, SyncedManifest manifest
	Logs                     logs
}

const witnessBytes = 8 + 8 + 36 + 4 + 2*24 + maxLogs*16 + 8

func openWitness(meta *folders.Folder) (*witness, error) {
	f, err := meta.Open(WitnessName, os.O_RDWR|os.O_CREATE)
	if err != nil {
		return nil, fmt.Errorf("disk: %w", err)
	}
	w := &witness{file: f, dir: meta.Path(folders.DatabaseName), blank: true}
	var b [witnessBytes]byte
	n, _ := f.ReadAt(b[:], 0)
	if n == len(b) && binary.LittleEndian.Uint64(b[n-8:]) == xxh3.Hash(b[:n-8]) {
		_, err := binary.Decode(b[:], binary.LittleEndian, &w.mu.noted)
		w.blank, w.old = err != nil, w.mu.Inline
	}
	return w, nil
}

// look is an error when the database lacks commits that the witness has counted,
// or cannot be read from its first record on.
func (s *Store) look(db *database.DB) error {
	var number uint64
	err := db.Get([][]byte{database.CommitsKey()}, func(_ int, v []byte) {
		if len(v) == 8 {
			number = binary.LittleEndian.Uint64(v)
		}
	})
	if err == nil {
		err = s.checkLogs(db)
	}
	if err == nil {
		err = s.witness.check(number)
	}
	if err == nil {
		_, err = db.Page(database.EntryPrefix(), nil, 1, func(_, _ []byte) error { return nil })
	}
	return err
}

// checkTables is an error when the database's list of tables has lost some. It
// is asked before Badger opens the database, which removes unlisted tables.
func (w *witness) checkTables() error {
	w.mu.Lock()
	want := w.mu.SyncedManifest
	if w.mu.Boot == bootID() {
		want = w.mu.Manifest
	}
	w.mu.Unlock()
	if want.Size == 0 {
		return nil
	}
	have, err := readManifest(w.dir, int64(want.Size))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w: its manifest is gone", errLost)
	case err != nil && IsEnvironment(err):
		return fmt.Errorf("disk: %w", err)
	case err != nil:
		return fmt.Errorf("%w: its manifest: %w", errLost, err)
	case have != want && !have.rewritten(want):
		return fmt.Errorf("%w: its manifest does not begin with the %d bytes that it had", errLost, want.Size)
	}
	return nil
}

// check is an error when a database whose last commit has this number has lost
// some. From then on it is this boot's.
func (w *witness) check(number uint64) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	boot := bootID()
	if number < w.mu.Synced || number < w.mu.Number && w.mu.Boot == boot {
		return fmt.Errorf("%w: it knows of %d, there were %d", errLost, number, w.mu.Number)
	}
	w.mu.Boot = boot
	w.mu.Number = number
	w.mu.Logs.begin(w.dir, number)
	return nil
}

// updateTables remembers the manifest where it has changed, and reports whether that
// is to be written.
func (w *witness) updateTables() (changed bool) {
	info, err := os.Stat(filepath.Join(w.dir, manifestName))
	if err != nil {
		return false // checkTables says so
	}
	w.mu.Lock()
	seen := w.mu.seen
	w.mu.Unlock()
	if seen != nil && seen.Size() == info.Size() && os.SameFile(seen, info) {
		return false
	}
	m, err := readManifest(w.dir, math.MaxInt64)
	if err != nil {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.Manifest, w.mu.seen = m, info
	return true
}

// sawTables is updateTables, written down.
func (w *witness) sawTables() {
	if !w.updateTables() {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	_ = w.write() // one that is behind says less
}

// last is the number of the last commit, and the manifest as it was noted last.
func (w *witness) last() (number uint64, tables manifest) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.Number, w.mu.Manifest
}

// saw notes that a commit is in the database, which brought it so many payloads.
func (w *witness) saw(number uint64, inline int32) {
	w.updateTables()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.Number = number
	w.mu.Inline += inline
	w.mu.Logs.extend(w.dir, number-1)
	_ = w.write() // one that is behind says less
}

// doubted stands for the boot once the database has failed with an EIO.
var doubted = boot{'d', 'o', 'u', 'b', 't', 'e', 'd'}

// doubt expects no more of the database than was synced, as after a power
// failure: the kernel keeps pages that the device has not taken as long as it likes.
func (w *witness) doubt() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.Boot = doubted
	_ = w.write() // without it a process that ends now leaves what seems to be damage
}

// synced notes that all up to a commit, and the manifest as it was then, survive
// a power failure.
func (w *witness) synced(number uint64, m manifest) error {
	w.mu.Lock()
	w.mu.Synced, w.mu.SyncedManifest = number, m
	err := w.write()
	w.mu.Unlock()
	if err == nil {
		err = w.file.Sync()
	}
	return err
}

// write is called with the mutex held: the page cache takes it.
func (w *witness) write() error {
	if w.mu.Boot == (boot{}) {
		w.mu.Boot = bootID()
	}
	b, err := binary.Append(make([]byte, 0, witnessBytes), binary.LittleEndian, &w.mu.noted)
	if err == nil {
		_, err = w.file.WriteAt(binary.LittleEndian.AppendUint64(b, xxh3.Hash(b)), 0)
	}
	return err
}

func (w *witness) close() {
	if w != nil {
		_ = w.file.Close()
	}
}

// boot tells the starts of the machine apart.
type boot [36]byte

// bootID is that of now; "?" where that is not known.
func bootID() (id boot) {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		text = []byte("?")
	}
	copy(id[:], bytes.TrimSpace(text))
	return id
}

const (
	manifestName = "MANIFEST"
	manifestHead = 16 // bytes: magic and versions, then the length and the checksum of the first change
)

// manifest tells Badger's list of tables by its first bytes. The file grows with
// each change, and is replaced once more than 10,000 tables were removed; it
// begins with another change then.
type manifest struct {
	Size  uint64 // of those bytes
	First uint64 // length and checksum of the first change
	Sum   uint64 // XXH3-64 of all of them
}

// readManifest reads the first n bytes of the manifest in dir, or all if there
// are fewer.
func readManifest(dir string, n int64) (m manifest, err error) {
	f, err := os.Open(filepath.Join(dir, manifestName))
	if err != nil {
		return m, err
	}
	defer f.Close() //nolint:errcheck // nothing was written
	text, err := io.ReadAll(io.LimitReader(f, n))
	if err != nil {
		return m, err
	}
	m.Size, m.Sum = uint64(len(text)), xxh3.Hash(text)
	if len(text) >= manifestHead {
		m.First = binary.LittleEndian.Uint64(text[manifestHead-8:])
	}
	return m, nil
}

// rewritten reports whether m has taken the place of an older one. The first
// change of what Badger rewrites is never empty.
func (m manifest) rewritten(older manifest) bool { return m.First != 0 && m.First != older.First }

const maxLogs = 4 // that are noted, of which Badger has two at a time

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
	ID    uint64 // in the name of the file, and wasThere; 0 = none
	After uint64
}

func logPath(dir string, id uint64) string { return filepath.Join(dir, fmt.Sprintf("%05d.mem", id)) }

// begin forgets the logs that are gone, and notes the one that Badger has made at
// its opening, which begins behind a commit. Their numbers may start over.
func (l *logs) begin(dir string, after uint64) {
	last := lastLog(dir)
	old := *l
	*l = logs{}
	for _, x := range old {
		x.ID &^= wasThere
		if _, err := os.Stat(logPath(dir, x.ID)); x.ID > 0 && x.ID < last && err == nil {
			l.push(x)
		}
	}
	l.push(logStart{last, after})
}

// extend adds the logs that have come since, which begin behind a commit.
func (l *logs) extend(dir string, after uint64) {
	for {
		next := l[maxLogs-1].ID + 1
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

// findLogs notes which of the logs are there. It is asked before Badger opens
// the database, which makes tables of them. Where that start does not get through,
// the next one takes them for there too.
func (w *witness) findLogs() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.found = w.found[:0]
	for i := range w.mu.Logs {
		x := &w.mu.Logs[i]
		if x.ID == 0 || x.After == 0 || w.mu.Boot != bootID() && x.After > w.mu.Synced {
			continue // a power failure may have taken it
		}
		if _, err := os.Stat(logPath(w.dir, x.ID)); x.ID&wasThere == 0 && err != nil {
			continue
		}
		x.ID |= wasThere
		w.found = append(w.found, x.After)
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
