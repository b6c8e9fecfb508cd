package arena

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// mapping is the memory of an arena and the descriptor it is shared by.
type mapping struct {
	mem       []byte
	file      *os.File // for clients
	whole     *os.File // for the next process, writable; nil: the arena is not kept
	populated int64    // bytes from the front on
	hugeBytes int64
	locked    bool
}

// newMapping creates, maps, fills and seals the memory, in this order: after
// F_SEAL_FUTURE_WRITE not even the daemon can map it writable.
func newMapping(o Options) (m mapping, err error) {
	if m.file, err = NewMemory("kvstored-arena", o.CapacityBytes); err != nil {
		return mapping{}, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, m.close())
		}
	}()
	if m.mem, err = MapHuge(m.file, o.CapacityBytes, true); err != nil {
		return m, err
	}
	// Prompts do not belong into a core dump. Nothing depends on the advice,
	// so a kernel that does not take it is no error.
	_ = unix.Madvise(m.mem, unix.MADV_DONTDUMP)
	if err = m.populate(&o); err != nil {
		return m, err
	}
	if o.Mlock {
		if err = m.lock(); err != nil {
			return m, err
		}
	}
	if o.Keep {
		return m, m.share()
	}
	if err = addSeals(m.file, unix.F_SEAL_FUTURE_WRITE|unix.F_SEAL_SEAL); err != nil {
		return m, fmt.Errorf("the arena needs Linux 5.1: %w", err)
	}
	m.file = readOnly(m.file)
	return m, nil
}

func (m *mapping) close() error {
	var errs []error
	if m.mem != nil {
		errs = append(errs, Unmap(m.mem))
		m.mem = nil
	}
	if m.whole != nil {
		errs = append(errs, m.whole.Close())
	}
	if m.file != nil {
		errs = append(errs, m.file.Close())
	}
	m.file, m.whole = nil, nil
	return errors.Join(errs...)
}

// populate advises huge pages and faults the first slice in, as far as o asks.
func (m *mapping) populate(o *Options) error {
	m.adviseHuge(o)
	m.populated = o.CapacityBytes
	if o.Touch == nil {
		return nil
	}
	m.populated = min(m.populated, sliceBytes)
	if err := touchAll(context.Background(), m.mem[:m.populated], o.touch); err != nil {
		return err
	}
	var err error
	if m.hugeBytes, err = hugeMapped(m.mem); err != nil {
		return err
	}
	if o.HugePages == HugeOn && m.hugeBytes == 0 {
		return errors.New("huge pages: the kernel gave none; set cpu.hugepages: auto, or see /sys/kernel/mm/transparent_hugepage/shmem_enabled")
	}
	return nil
}

func (m *mapping) adviseHuge(o *Options) {
	advice := unix.MADV_HUGEPAGE
	if o.HugePages == HugeOff {
		advice = unix.MADV_NOHUGEPAGE
	}
	// An error means a kernel without huge pages, which New measures.
	_ = unix.Madvise(m.mem, advice)
}

// lock locks the populated part, and each other page once it is there.
func (m *mapping) lock() error {
	err := unix.Mlock(m.mem[:m.populated])
	if rest := m.mem[m.populated:]; err == nil && len(rest) > 0 {
		err = lockOnFault(rest)
	}
	if err == nil {
		m.locked = true
		return nil
	}
	var r unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_MEMLOCK, &r) == nil && r.Cur < uint64(len(m.mem)) {
		return fmt.Errorf("mlock of %d bytes: RLIMIT_MEMLOCK is %d; raise it (LimitMEMLOCK= in the systemd unit) or set cpu.mlock: false: %w", len(m.mem), r.Cur, err)
	}
	return fmt.Errorf("mlock of %d bytes: %w", len(m.mem), err)
}

func lockOnFault(p []byte) error {
	_, _, errno := unix.Syscall(unix.SYS_MLOCK2, uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)), unix.MLOCK_ONFAULT)
	if errno != 0 {
		return errno
	}
	return nil
}

// Touch faults a part of an arena in, by huge pages where asked for and available.
func Touch(part []byte, huge bool) error {
	if whole := len(part) / HugeBytes * HugeBytes; huge && whole > 0 {
		// The kernel collapses a range once a page of it is there, and gives
		// huge pages then under any shmem_enabled ("deny" excepted). It
		// needs Linux 6.1 and unfragmented memory; the rest is filled
		// below. It takes 3 CPU seconds per GiB where filling takes 0.8
		// (measured on a small virtual machine), once, for faster direct I/O
		// ever after.
		for i := 0; i < whole; i += HugeBytes {
			if err := faultIn(part[i : i+AlignBytes]); err != nil {
				return err
			}
		}
		_ = unix.Madvise(part[:whole], unix.MADV_COLLAPSE)
	}
	return faultIn(part)
}

// faultIn has an error where memory is short, and no signal, but on a kernel before 5.14.
func faultIn(p []byte) error {
	err := unix.Madvise(p, unix.MADV_POPULATE_WRITE)
	if errors.Is(err, unix.EINVAL) {
		for i := 0; i < len(p); i += AlignBytes {
			atomic.AddUint32((*uint32)(unsafe.Pointer(&p[i])), 0) // a write that changes nothing
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("fault in %d bytes: %w", len(p), err)
	}
	return nil
}

// NewMemory creates a file of n bytes in memory whose size is sealed. Its mode is 0600.
func NewMemory(name string, n int64) (*os.File, error) {
	const flags = unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	fd, err := unix.MemfdCreate(name, flags|unix.MFD_NOEXEC_SEAL)
	if errors.Is(err, unix.EINVAL) { // before Linux 6.3
		fd, err = unix.MemfdCreate(name, flags)
	}
	if err != nil {
		return nil, fmt.Errorf("memfd_create: %w", err)
	}
	f := os.NewFile(uintptr(fd), name)
	if err := prepare(f, n); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func prepare(f *os.File, n int64) error {
	// A memfd is born open to all, and a process with any descriptor of it
	// could open it again through /proc with more rights.
	if err := f.Chmod(0o600); err != nil {
		return err
	}
	if err := f.Truncate(n); err != nil {
		return err
	}
	return addSeals(f, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW)
}

func addSeals(f *os.File, seals int) error {
	if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, seals); err != nil {
		return fmt.Errorf("add seals %#x to %s: %w", seals, f.Name(), err)
	}
	return nil
}

// readOnly exchanges a sealed file for a read-only descriptor of it, so that a
// client cannot even ask. Without /proc the file itself has to do: its seals
// are what protects it.
func readOnly(f *os.File) *os.File {
	fd, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", f.Fd()), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return f
	}
	// Closing a memfd that stays mapped cannot lose anything.
	_ = f.Close()
	return os.NewFile(uintptr(fd), f.Name())
}
