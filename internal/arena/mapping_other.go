//go:build !linux

package arena

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// mapping is the memory of an arena. Without sealed memory files nothing can
// be shared safely, so clients get their bytes inline.
type mapping struct {
	mem       []byte
	file      *os.File // always nil
	whole     *os.File // always nil
	hugeBytes int64    // always 0
	locked    bool
}

func newMapping(o Options) (m mapping, err error) {
	if o.Direct {
		return m, fmt.Errorf("arena.puts: direct needs Linux: %w", errors.ErrUnsupported)
	}
	if o.HandOver {
		return m, fmt.Errorf("upgrade.hand_over: true needs Linux: %w", errors.ErrUnsupported)
	}
	if o.HugePages == HugeOn {
		return m, fmt.Errorf("cpu.hugepages: on needs Linux: %w", errors.ErrUnsupported)
	}
	m.mem, err = unix.Mmap(-1, 0, int(o.CapacityBytes), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return m, fmt.Errorf("map %d bytes: %w", o.CapacityBytes, err)
	}
	if o.Mlock {
		if err := unix.Mlock(m.mem); err != nil {
			return m, errors.Join(fmt.Errorf("mlock of %d bytes: %w", len(m.mem), err), m.close())
		}
		m.locked = true
	}
	if o.Touch {
		for i := 0; i < len(m.mem); i += AlignBytes {
			m.mem[i] = 0
		}
	}
	return m, nil
}

func (m *mapping) adopt(Options) error {
	return fmt.Errorf("memory is handed over on Linux only: %w", errors.ErrUnsupported)
}

func (m *mapping) close() error {
	mem := m.mem
	if m.mem = nil; mem == nil {
		return nil
	}
	return unix.Munmap(mem)
}
