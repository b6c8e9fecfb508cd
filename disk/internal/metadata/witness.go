package metadata

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/zeebo/xxh3"

	"github.com/kvstored/kvstored/disk/internal/folders"
	"github.com/kvstored/kvstored/internal/database"
)

// The file of a witness, and the sizes of its parts.
const (
	WitnessName  = "kvstored.commits"
	witnessBytes = 8 + 8 + bootBytes + 2*manifestBytes + maxLogs*logBytes + 8
	witnessLogs  = 8 + 8 + bootBytes + 2*manifestBytes // where they begin
	bootBytes    = 40
)

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
// The file is 176 bytes, written in place after each commit: the number of the
// last one, of the last one that was synced, the boot of the machine, the
// manifest as it is and as it was synced, the logs, and an XXH3-64 of that. One
// that does not match says nothing.
type witness struct {
	file  *os.File
	dir   string   // of the database
	boot  string   // of the process that wrote it, then of this one
	blank bool     // the file said nothing when it was opened
	found []uint64 // see findLogs

	mu struct {
		sync.Mutex
		number, synced           uint64
		manifest, syncedManifest manifest
		seen                     os.FileInfo // of that manifest
		logs                     logs
	}
}

func openWitness(meta *folders.Folder) (*witness, error) {
	f, err := meta.Open(WitnessName, os.O_RDWR|os.O_CREATE)
	if err != nil {
		return nil, fmt.Errorf("disk: %w", err)
	}
	w := &witness{file: f, dir: meta.Path(folders.DatabaseName), blank: true}
	var b [witnessBytes]byte
	n, _ := f.ReadAt(b[:], 0)
	le := binary.LittleEndian
	if n == len(b) && le.Uint64(b[witnessBytes-8:]) == xxh3.Hash(b[:witnessBytes-8]) {
		w.mu.number, w.mu.synced = le.Uint64(b[:]), le.Uint64(b[8:])
		w.boot = strings.TrimRight(string(b[16:16+bootBytes]), "\x00")
		w.mu.manifest = parseManifest(b[16+bootBytes:])
		w.mu.syncedManifest = parseManifest(b[16+bootBytes+manifestBytes:])
		w.mu.logs = parseLogs(b[witnessLogs:])
		w.blank = false
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
	want := w.mu.syncedManifest
	if w.boot == bootID() {
		want = w.mu.manifest
	}
	w.mu.Unlock()
	if want.size == 0 {
		return nil
	}
	have, err := readManifest(w.dir, int64(want.size))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w: its manifest is gone", errLost)
	case err != nil && IsEnvironment(err):
		return fmt.Errorf("disk: %w", err)
	case err != nil:
		return fmt.Errorf("%w: its manifest: %w", errLost, err)
	case have != want && !have.rewritten(want):
		return fmt.Errorf("%w: its manifest does not begin with the %d bytes that it had", errLost, want.size)
	}
	return nil
}

// check is an error when a database whose last commit has this number has lost
// some. From then on it is this boot's.
func (w *witness) check(number uint64) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	boot := bootID()
	if number < w.mu.synced || number < w.mu.number && w.boot == boot {
		return fmt.Errorf("%w: it knows of %d, there were %d", errLost, number, w.mu.number)
	}
	w.boot = boot
	w.mu.number = number
	w.mu.logs.begin(w.dir, number)
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
	w.mu.manifest, w.mu.seen = m, info
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
	return w.mu.number, w.mu.manifest
}

// saw notes that a commit is in the database.
func (w *witness) saw(number uint64) {
	w.updateTables()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.number = number
	w.mu.logs.extend(w.dir, number-1)
	_ = w.write() // one that is behind says less
}

// doubted stands for the boot once the database has failed with an EIO.
const doubted = "doubted"

// doubt expects no more of the database than was synced, as after a power
// failure: the kernel keeps pages that the device has not taken as long as it likes.
func (w *witness) doubt() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.boot = doubted
	_ = w.write() // without it a process that ends now leaves what seems to be damage
}

// synced notes that all up to a commit, and the manifest as it was then, survive
// a power failure.
func (w *witness) synced(number uint64, m manifest) error {
	w.mu.Lock()
	w.mu.synced, w.mu.syncedManifest = number, m
	err := w.write()
	w.mu.Unlock()
	if err == nil {
		err = w.file.Sync()
	}
	return err
}

// write is called with the mutex held: the page cache takes it.
func (w *witness) write() error {
	if w.boot == "" {
		w.boot = bootID()
	}
	var b [witnessBytes]byte
	le := binary.LittleEndian
	le.PutUint64(b[:], w.mu.number)
	le.PutUint64(b[8:], w.mu.synced)
	copy(b[16:16+bootBytes], w.boot)
	w.mu.manifest.put(b[16+bootBytes:])
	w.mu.syncedManifest.put(b[16+bootBytes+manifestBytes:])
	w.mu.logs.put(b[witnessLogs:])
	le.PutUint64(b[witnessBytes-8:], xxh3.Hash(b[:witnessBytes-8]))
	_, err := w.file.WriteAt(b[:], 0)
	return err
}

func (w *witness) close() {
	if w != nil {
		_ = w.file.Close()
	}
}

// bootID changes with each start of the machine; "?" where that is not known.
func bootID() string {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "?"
	}
	return strings.TrimSpace(string(text))
}

const (
	manifestName  = "MANIFEST"
	manifestHead  = 16 // bytes: magic and versions, then the length and the checksum of the first change
	manifestBytes = 8 + 8 + 8
)

// manifest tells Badger's list of tables by its first bytes. The file grows with
// each change, and is replaced once more than 10,000 tables were removed; it
// begins with another change then.
type manifest struct {
	size  uint64 // of those bytes
	first uint64 // length and checksum of the first change
	sum   uint64 // XXH3-64 of all of them
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
	m.size, m.sum = uint64(len(text)), xxh3.Hash(text)
	if len(text) >= manifestHead {
		m.first = binary.LittleEndian.Uint64(text[manifestHead-8:])
	}
	return m, nil
}

// rewritten reports whether m has taken the place of an older one. The first
// change of what Badger rewrites is never empty.
func (m manifest) rewritten(older manifest) bool { return m.first != 0 && m.first != older.first }

func parseManifest(b []byte) manifest {
	le := binary.LittleEndian
	return manifest{le.Uint64(b), le.Uint64(b[8:]), le.Uint64(b[16:])}
}

func (m manifest) put(b []byte) {
	le := binary.LittleEndian
	le.PutUint64(b, m.size)
	le.PutUint64(b[8:], m.first)
	le.PutUint64(b[16:], m.sum)
}

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
