package arena

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/kvstored/kvstored/internal/pages"
)

// mapping is the memory of an arena and the descriptor it is shared by.
type mapping struct {
	mem       []byte
	file      *os.File // for clients
	whole     *os.File // for the next process, writable; nil: the arena is not kept
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
	if m.mem, err = pages.Map(m.file, o.CapacityBytes, true); err != nil {
		return m, err
	}
	// Prompts do not belong into a core dump. Nothing depends on the advice,
	// so a kernel that does not take it is no error.
	_ = unix.Madvise(m.mem, unix.MADV_DONTDUMP)
	if err = m.populate(o); err != nil {
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
		errs = append(errs, pages.Unmap(m.mem))
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

// populate advises huge pages and faults all pages in, as far as o asks.
func (m *mapping) populate(o Options) error {
	huge, advice := o.HugePages != HugeOff, unix.MADV_HUGEPAGE
	if !huge {
		advice = unix.MADV_NOHUGEPAGE
	}
	// An error means a kernel without huge pages, which is measured below.
	_ = unix.Madvise(m.mem, advice)
	if !o.Touch {
		return nil
	}
	if err := touch(m.mem, huge); err != nil {
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

func (m *mapping) lock() error {
	err := unix.Mlock(m.mem)
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

// stripeBytes is what one worker faults in at a time: enough to make the
// system call cheap, small enough to spread the work.
const stripeBytes = 64 << 20

// touch faults all of mem in, on all CPUs, by huge pages where asked for and
// available.
func touch(mem []byte, huge bool) error {
	stripes := (len(mem) + stripeBytes - 1) / stripeBytes
	var (
		next atomic.Int64
		wg   sync.WaitGroup
		errs = make([]error, min(runtime.GOMAXPROCS(0), stripes))
	)
	for w := range errs {
		wg.Go(func() {
			for errs[w] == nil {
				i := int(next.Add(1)) - 1
				if i >= stripes {
					return
				}
				errs[w] = touchStripe(mem[i*stripeBytes:min((i+1)*stripeBytes, len(mem))], huge)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

func touchStripe(p []byte, huge bool) error {
	if whole := len(p) / pages.HugeBytes * pages.HugeBytes; huge && whole > 0 {
		// The kernel collapses a range once a page of it is there, and gives
		// huge pages then under any shmem_enabled ("deny" excepted). It
		// needs Linux 6.1 and unfragmented memory; the rest is filled
		// below. It takes 3 CPU seconds per GiB where filling takes 0.8
		// (measured on a small virtual machine), once, for faster direct I/O
		// ever after.
		for i := 0; i < whole; i += pages.HugeBytes {
			p[i] = 0
		}
		_ = unix.Madvise(p[:whole], unix.MADV_COLLAPSE)
	}
	err := unix.Madvise(p, unix.MADV_POPULATE_WRITE)
	if errors.Is(err, unix.EINVAL) { // before Linux 5.14
		for i := 0; i < len(p); i += AlignBytes {
			p[i] = 0
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("fault in %d bytes: %w", len(p), err)
	}
	return nil
}
