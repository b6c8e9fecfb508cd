package disk

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"

	"github.com/zeebo/xxh3"

	"github.com/kvstored/kvstored/disk/internal/filesystem"
	"github.com/kvstored/kvstored/key"
)

const (
	deletionsName = "kvstored.deletions"
	deletionBytes = 16 + 16 + 8 + 8
)

// deletionLog has the notes about deleted keys once more, outside the database,
// which may be lost again before the headers of these keys are found. It grows
// by 48 bytes a key that is deleted during a recovery: space, hash, the number of
// the deletion, and an XXH3-64 of these; a note without it is passed over. A
// note that was written in part is overwritten by the next one: all of them lie
// at multiples of their size. The end of the recovery removes the file.
type deletionLog struct {
	in *filesystem.Folder
	mu struct {
		sync.Mutex
		file *os.File // nil until there is something to note
		end  int64    // of the last whole note
	}
}

// append writes keys to the file, so that they survive a kill.
func (l *deletionLog) append(ks []key.Key, seq uint64) error {
	text := make([]byte, 0, len(ks)*deletionBytes)
	for _, k := range ks {
		from := len(text)
		text = append(append(text, k.Space[:]...), k.Hash[:]...)
		text = binary.LittleEndian.AppendUint64(text, seq)
		text = binary.LittleEndian.AppendUint64(text, xxh3.Hash(text[from:]))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	err := l.open()
	if err == nil {
		_, err = l.mu.file.WriteAt(text, l.mu.end)
	}
	if err != nil {
		return fmt.Errorf("disk: note deletions: %w", err)
	}
	l.mu.end += int64(len(text))
	return nil
}

// open makes the file, or goes on behind the notes that it has. It is called
// with the mutex held.
func (l *deletionLog) open() error {
	if l.mu.file != nil {
		return nil
	}
	f, err := l.in.Open(deletionsName, os.O_WRONLY|os.O_CREATE)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err == nil {
		err = l.in.Sync()
	}
	if err != nil {
		return errors.Join(err, f.Close())
	}
	l.mu.file, l.mu.end = f, info.Size()/deletionBytes*deletionBytes
	return nil
}

// read adds the notes of the file to deletions; of two for a key the higher number
// counts.
func (l *deletionLog) read(deletions map[key.Key]uint64) error {
	text, err := l.in.Read(deletionsName)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("disk: read deletions: %w", err)
	}
	for ; len(text) >= deletionBytes; text = text[deletionBytes:] {
		if binary.LittleEndian.Uint64(text[deletionBytes-8:]) != xxh3.Hash(text[:deletionBytes-8]) {
			continue
		}
		var k key.Key
		copy(k.Space[:], text)
		copy(k.Hash[:], text[16:])
		deletions[k] = max(deletions[k], binary.LittleEndian.Uint64(text[32:]))
	}
	return nil
}

// sync makes the notes survive a power failure.
func (l *deletionLog) sync() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.file == nil {
		return nil
	}
	return l.mu.file.Sync()
}

// remove forgets the notes: no header of the keys is left.
func (l *deletionLog) remove() error {
	l.close()
	if err := l.in.Remove(deletionsName); err != nil {
		return fmt.Errorf("disk: remove the notes of deletions: %w", err)
	}
	return nil
}

func (l *deletionLog) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.file != nil {
		_ = l.mu.file.Close()
		l.mu.file = nil
	}
}
