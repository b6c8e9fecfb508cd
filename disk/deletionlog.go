package disk

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/zeebo/xxh3"

	"github.com/kvstored/kvstored/disk/internal/blockio"
	"github.com/kvstored/kvstored/disk/internal/folders"
	"github.com/kvstored/kvstored/key"
)

const (
	deletionsName = "kvstored.deletions"
	deletionBytes = 16 + 16 + 8 + 8
)

// deletionLog has notes about deleted keys of which there may be headers: those that
// are deleted during a recovery, which has not found all headers yet, and those whose
// tombstone the device did not take. It lies outside the database, which may be lost
// before the headers are overwritten. It grows by 48 bytes a key: space, hash, the number of
// the deletion, and an XXH3-64 of these; a note without it is passed over. A
// note that was written in part is overwritten by the next one: all of them lie
// at multiples of their size. The end of the recovery removes the file.
//
// Its device may hang: then all but read fail within the timeout, and one goroutine stays
// with the device.
type deletionLog struct {
	in      *folders.Folder
	timeout time.Duration
	turn    chan struct{} // held by who uses what follows
	file    *os.File      // nil until there is something to note
	end     int64         // of the last whole note
}

func newDeletionLog(in *folders.Folder, timeout time.Duration) *deletionLog {
	return &deletionLog{in: in, timeout: timeout, turn: make(chan struct{}, 1)}
}

func (l *deletionLog) enter() error {
	select {
	case l.turn <- struct{}{}:
		return nil
	case <-time.After(l.timeout):
		return fmt.Errorf("disk: notes of deletions: after %v: %w", l.timeout, blockio.ErrHung)
	}
}

func (l *deletionLog) leave() { <-l.turn }

// append writes keys to the file, so that they survive a kill: a header brings none of ks
// back, should the database be lost.
func (l *deletionLog) append(ks []key.Key, seq uint64) error {
	text := make([]byte, 0, len(ks)*deletionBytes)
	for _, k := range ks {
		from := len(text)
		text = append(append(text, k.Space[:]...), k.Hash[:]...)
		text = binary.LittleEndian.AppendUint64(text, seq)
		text = binary.LittleEndian.AppendUint64(text, xxh3.Hash(text[from:]))
	}
	if err := l.enter(); err != nil {
		return err
	}
	return within(l.timeout, func() error {
		defer l.leave()
		err := l.open()
		if err == nil {
			_, err = l.file.WriteAt(text, l.end)
		}
		if err != nil {
			return fmt.Errorf("disk: note deletions: %w", err)
		}
		l.end += int64(len(text))
		return nil
	})
}

// open makes the file, or goes on behind the notes that it has. Its caller has the turn.
func (l *deletionLog) open() error {
	if l.file != nil {
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
	l.file, l.end = f, info.Size()/deletionBytes*deletionBytes
	return nil
}

// read returns the numbers of the notes by key; of two for a key the higher one
// counts.
func (l *deletionLog) read() (map[key.Key]uint64, error) {
	deletions := make(map[key.Key]uint64)
	text, err := l.in.Read(deletionsName)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("disk: read deletions: %w", err)
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
	return deletions, nil
}

// sync makes the notes survive a power failure, and returns how far they go.
func (l *deletionLog) sync() (end int64, err error) {
	if err := l.enter(); err != nil {
		return 0, err
	}
	defer l.leave()
	if l.file == nil {
		return l.end, nil
	}
	return l.end, l.file.Sync()
}

// remove forgets the notes up to end, of whose keys no header is left, and reports whether
// it did: where there are later ones all stay.
func (l *deletionLog) remove(end int64) (bool, error) {
	if err := l.enter(); err != nil {
		return false, err
	}
	defer l.leave()
	if l.end != end {
		return false, nil
	}
	l.shut()
	if err := l.in.Remove(deletionsName); err != nil {
		return false, fmt.Errorf("disk: remove the notes of deletions: %w", err)
	}
	return true, nil
}

// close ends it. A file whose device hangs is left open.
func (l *deletionLog) close() {
	if l.enter() == nil {
		defer l.leave()
		l.shut()
	}
}

func (l *deletionLog) shut() {
	if l.file != nil {
		_ = l.file.Close()
		l.file, l.end = nil, 0
	}
}
