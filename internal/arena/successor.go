package arena

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Files are the descriptors by which another process goes on with an arena.
type Files struct {
	Whole   *os.File // writable
	Clients *os.File // to pass to clients
}

// ErrNotKept says that an arena was made without Options.Keep.
var ErrNotKept = errors.New("arena: it was not made to be kept")

// Files returns the descriptors for the next process. The arena owns them: do not close them.
func (a *Arena) Files() (Files, error) {
	if a.mapping.whole == nil {
		return Files{}, ErrNotKept
	}
	return Files{Whole: a.mapping.whole, Clients: a.mapping.file}, nil
}

// Adopt makes an arena of the memory of another process, with all that is in it and
// nothing handed out; see Reclaim. It takes the files over, and closes them where it
// fails.
func Adopt(f Files, o Options) (*Arena, error) {
	o.CapacityBytes = o.CapacityBytes / AlignBytes * AlignBytes
	m := mapping{file: f.Clients, whole: f.Whole}
	err := o.check()
	if err == nil {
		err = m.adopt(o)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("arena: adopt: %w", err), m.close())
	}
	return newArena(m, &o), nil
}

// CountHuge counts the bytes in huge pages anew: Adopt does not fault the memory in, and its
// pages are mapped as they are used.
func (a *Arena) CountHuge() error {
	n, err := hugeMapped(a.mapping.mem)
	if err == nil {
		a.huge.Store(n)
	}
	return err
}

// Reclaim gives the ids that blocks of another process had to Place: those up to the largest
// that taken says. Call it before anything is handed out.
func (a *Arena) Reclaim(largest uint32, taken func(id uint32) bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.mu.used = largest
	for id := largest; id > 0; id-- { // the smallest is used first
		if p := &a.states[id/statesPerPage]; p.Load() == nil {
			p.Store(new(statePage))
		}
		if !taken(id) {
			a.mu.spare = append(a.mu.spare, id)
		}
	}
}

// Place makes a sealed block of n bytes of what lies at off, with one reference, owned by the
// caller, and an id that Reclaim has taken, once. It is false where off is no place for a
// block, or not free; the id is spare then. Nothing has shown yet that the bytes sum to sum:
// see Clear.
func (a *Arena) Place(id uint32, off int64, n int, sum uint64) (Block, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if n <= 0 || n > MaxPayload || a.mu.closed || !a.mu.space.ReserveTag(off, int64(n), id) {
		a.mu.spare = append(a.mu.spare, id)
		return Block{}, false
	}
	s := a.state(id)
	s.off, s.n = off, int32(n)
	s.sum.Store(sum)
	s.flags.Store(sealed | doubtful)
	s.refs.Store(1)
	return Block{a: a, id: id, gen: s.gen.Load()}, true
}

// Close closes both, for files that no arena has taken over.
func (f Files) Close() {
	for _, file := range []*os.File{f.Whole, f.Clients} {
		if file != nil {
			_ = file.Close() // it is memory: nothing is lost
		}
	}
}

// share has clients get a descriptor that only reads, of a file that may still be
// mapped writable by a holder of the other one.
//
// F_SEAL_FUTURE_WRITE would stop the next process too. In its place a client is kept from
// writing by the mode of its descriptor, and from opening the file again through /proc
// by the mode of the file, which says that also its owner may only read. Root, and the
// daemon's own user by way of chmod, get past it.
func (m *mapping) share() error {
	if err := addSeals(m.file, unix.F_SEAL_SEAL); err != nil {
		return err
	}
	fd, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", m.file.Fd()), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("cpu.keep: true needs /proc, for a descriptor that clients can only read: %w", err)
	}
	m.whole, m.file = m.file, os.NewFile(uintptr(fd), m.file.Name())
	return m.whole.Chmod(0o400)
}

// adopt maps the files of another process. It changes no byte.
func (m *mapping) adopt(o Options) (err error) {
	if err := m.checkFiles(o); err != nil {
		return err
	}
	if m.mem, err = MapHuge(m.whole, o.CapacityBytes, true); err != nil {
		return err
	}
	_ = unix.Madvise(m.mem, unix.MADV_DONTDUMP) // as for a new one
	m.adviseHuge(&o)
	m.populated = o.CapacityBytes
	if o.Touch != nil {
		if m.populated, err = keptBytes(m.whole, o.CapacityBytes); err != nil {
			return err
		}
	}
	if o.Mlock {
		return m.lock()
	}
	return nil
}

// keptBytes is how many bytes of a file of memory an earlier process had populated, which may have
// ended before all were: those up to the end of the last slice without a hole.
func keptBytes(f *os.File, capacity int64) (int64, error) {
	end := capacity
	for end > 0 {
		start := (end - 1) / sliceBytes * sliceBytes
		hole, err := unix.Seek(int(f.Fd()), start, unix.SEEK_HOLE)
		if err != nil {
			return 0, fmt.Errorf("look for a hole in what is kept: %w", err)
		}
		if hole >= end {
			break
		}
		end = start
	}
	return end, nil
}

// checkFiles is an error unless the files are those of an arena with these options: its
// size can then never change under the mapping.
func (m *mapping) checkFiles(o Options) error {
	if m.whole == nil || m.file == nil {
		return errors.New("a descriptor is missing")
	}
	const fixed = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL
	seals, err := unix.FcntlInt(m.whole.Fd(), unix.F_GET_SEALS, 0)
	if err != nil {
		return fmt.Errorf("the file kept is no memory file: %w", err)
	}
	if seals&fixed != fixed || seals&(unix.F_SEAL_WRITE|unix.F_SEAL_FUTURE_WRITE) != 0 {
		return fmt.Errorf("the file kept has the seals %#x: its size could change, or it cannot be written", seals)
	}
	var whole, clients unix.Stat_t
	if err := errors.Join(unix.Fstat(int(m.whole.Fd()), &whole), unix.Fstat(int(m.file.Fd()), &clients)); err != nil {
		return err
	}
	if whole.Ino != clients.Ino || whole.Dev != clients.Dev {
		return errors.New("the descriptor for clients is of another file")
	}
	if whole.Size != o.CapacityBytes {
		return fmt.Errorf("the file kept has %d bytes, not the %d of cpu.capacity", whole.Size, o.CapacityBytes)
	}
	flags, err := unix.FcntlInt(m.file.Fd(), unix.F_GETFL, 0)
	if err != nil {
		return err
	}
	if flags&unix.O_ACCMODE != unix.O_RDONLY {
		return errors.New("clients could write by the descriptor that is for them")
	}
	return nil
}
