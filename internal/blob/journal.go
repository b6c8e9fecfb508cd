package blob

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"

	"github.com/kvstored/kvstored/key"
)

// journalMagic begins the file; hashes of 16 bytes follow.
const journalMagic = "KVOWED1\n"

// journal is a file of hashes that outlives the process: one is there from the
// return of write on. It is not synced, as the database is not: a power failure
// may lose it. Without a path there is none. There is a file only while there
// are hashes. A part of a hash at its end is of a write that never returned.
//
// The mutex is held over I/O, and taken before that of the debts.
type journal struct {
	path string
	mu   struct {
		sync.Mutex
		file  *os.File // nil: there is none
		saved int      // hashes in it
	}
}

// open reads the file at path, if there is one.
func (j *journal) open(path string) (hashes []key.Hash, err error) {
	j.path = path
	b, err := readAtMost(path, len(journalMagic)+(maxOwed+1)*len(key.Hash{}))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("owed deletions: %w", err)
	case len(b) < len(journalMagic): // killed before the first one
		return nil, nil
	case string(b[:len(journalMagic)]) != journalMagic:
		return nil, fmt.Errorf("owed deletions: %s is not kvstored's; move it away", path)
	}
	for b = b[len(journalMagic):]; len(b) >= len(key.Hash{}); b = b[len(key.Hash{}):] {
		hashes = append(hashes, key.Hash(b[:len(key.Hash{})]))
	}
	if len(hashes) > maxOwed {
		return nil, fmt.Errorf("owed deletions: %s has more than %d of them; move it away", path, maxOwed)
	}
	j.mu.saved = len(hashes)
	return hashes, nil
}

// readAtMost reads the first n bytes of a file.
func readAtMost(path string, n int) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // nothing was written through it
	return io.ReadAll(io.LimitReader(f, int64(n)))
}

// write adds what since says is behind what the file has.
func (j *journal) write(since func(n int) []key.Hash) error {
	if j.path == "" {
		return nil
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	hashes := since(j.mu.saved)
	if len(hashes) == 0 {
		return nil // another call took them along
	}
	if err := j.create(); err != nil {
		return fmt.Errorf("owed deletions: %w", err)
	}
	var b []byte
	for _, h := range hashes {
		b = append(b, h[:]...)
	}
	if _, err := j.mu.file.WriteAt(b, int64(len(journalMagic)+j.mu.saved*len(key.Hash{}))); err != nil {
		return fmt.Errorf("owed deletions: %w", err)
	}
	j.mu.saved += len(hashes)
	return nil
}

// create opens the file, or makes it; called with the mutex held.
func (j *journal) create() error {
	if j.mu.file != nil {
		return nil
	}
	f, err := os.OpenFile(j.path, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if _, err := f.WriteAt([]byte(journalMagic), 0); err != nil {
		_ = f.Close()
		return err
	}
	j.mu.file = f
	return nil
}

// clear removes the file if empty says that nothing is to be in it.
func (j *journal) clear(empty func() bool) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if !empty() {
		return nil
	}
	j.mu.saved = 0
	if j.mu.file != nil {
		_ = j.mu.file.Close() // nothing of it is wanted any more
		j.mu.file = nil
	}
	if j.path == "" {
		return nil
	}
	if err := os.Remove(j.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("owed deletions: %w", err)
	}
	return nil
}
