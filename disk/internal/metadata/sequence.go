package metadata

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"sync"

	"github.com/zeebo/xxh3"

	"github.com/kvstored/kvstored/disk/internal/folders"
)

// CommitsName is the file of a sequence.
const CommitsName = "kvstored.commits"

// sequence is the number of the last commit, outside the database, which cuts off a damaged
// log without a word: the newest commits are gone then, and with them what the database
// says of itself (see database.DB.Check). Commits that a power failure takes are no damage:
// it cannot take synced ones, and the machine has another boot since.
//
// The file is numbers in little endian and an XXH3-64 of that, 64 bytes, written in place
// after each commit. One that does not match says nothing.
type sequence struct {
	file  *os.File
	blank bool // the file said nothing when it was opened

	mu struct {
		sync.Mutex
		numbers
	}
}

// numbers is what a sequence notes.
type numbers struct {
	Last, Synced uint64 // the last commit, and the last one that was synced
	Boot         boot   // of the process that wrote it, then of this one
}

const sumBytes = 8

func openSequence(meta *folders.Folder) (*sequence, error) {
	f, err := meta.Open(CommitsName, os.O_RDWR|os.O_CREATE)
	if err != nil {
		return nil, fmt.Errorf("disk: %w", err)
	}
	s := &sequence{file: f, blank: true}
	text, _ := meta.Read(CommitsName) // what cannot be read says nothing
	if n := len(text) - sumBytes; n > 0 && binary.LittleEndian.Uint64(text[n:]) == xxh3.Hash(text[:n]) {
		_, err := binary.Decode(text[:n], binary.LittleEndian, &s.mu.numbers) // older programs wrote more behind them
		s.blank = err != nil
	}
	return s, nil
}

// begin takes over the number of a database that was just opened, and is an error where the
// database has lost commits.
func (s *sequence) begin(number uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	was, now := s.mu.numbers, bootID()
	s.mu.Last, s.mu.Synced, s.mu.Boot = number, min(was.Synced, number), now
	if number < was.Synced || number < was.Last && was.Boot == now {
		return fmt.Errorf("it has %d commits, and had %d", number, was.Last)
	}
	return nil
}

// last is the number of the last commit.
func (s *sequence) last() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.Last
}

// saw notes that a commit is in the database.
func (s *sequence) saw(number uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.Last = number
	_ = s.write() // one that is behind says less
}

// doubted stands for the boot once the database has failed with an EIO.
var doubted = boot{'d', 'o', 'u', 'b', 't', 'e', 'd'}

// doubt expects no more of the database than was synced, as after a power
// failure: the kernel keeps pages that the device has not taken as long as it likes.
func (s *sequence) doubt() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.Boot = doubted
	_ = s.write() // without it a process that ends now leaves what seems to be damage
}

// synced notes that all up to a commit survive a power failure.
func (s *sequence) synced(number uint64) error {
	s.mu.Lock()
	s.mu.Synced = number
	err := s.write()
	s.mu.Unlock()
	if err == nil {
		err = s.file.Sync()
	}
	return err
}

// write is called with the mutex held: the page cache takes it.
func (s *sequence) write() error {
	b, err := binary.Append(nil, binary.LittleEndian, &s.mu.numbers)
	if err != nil {
		return err
	}
	b = binary.LittleEndian.AppendUint64(b, xxh3.Hash(b))
	if _, err = s.file.WriteAt(b, 0); err == nil {
		err = s.file.Truncate(int64(len(b)))
	}
	return err
}

func (s *sequence) close() {
	if s != nil {
		_ = s.file.Close()
	}
}

// boot tells the starts of the machine apart.
type boot [40]byte

// bootID is that of now; "?" where that is not known.
func bootID() (id boot) {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		text = []byte("?")
	}
	copy(id[:], bytes.TrimSpace(text))
	return id
}
