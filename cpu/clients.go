package cpu

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

// MaxClients is how many connections can have mapped the arena at a time.
const MaxClients = 4096

// Client is a process that has mapped the arena.
type Client struct {
	PID   uint32 // 0: it has none in this process's namespace
	Start uint64 // when it began, in clock ticks since boot; 0: not known
}

// Slot is the connection of a client.
type Slot struct {
	Client
	LeaseAge time.Duration // that its leases have at most, in whole seconds; 0: not known
	number   int
}

// The first word of a slot.
const (
	pidMask  = math.MaxUint32
	taken    = 1 << 32 // a free one has it not
	ageShift = 33      // seconds above
	maxAge   = 1<<31 - 1
)

// Join notes that a connection maps the arena, before it gets the descriptor, and how old its
// leases become. It is false where there is no slot for one more.
func (m *Manifest) Join(c Client, leaseAge time.Duration) (s Slot, ok bool) {
	if m == nil {
		return s, true
	}
	m.slots.Lock()
	defer m.slots.Unlock()
	for i := range MaxClients {
		if w, start := m.slot(i); w.Load() == 0 {
			binary.LittleEndian.PutUint64(start, c.Start)
			age := (min(leaseAge, maxAge*time.Second) + time.Second - 1) / time.Second
			w.Store(uint64(age)<<ageShift | taken | uint64(c.PID))
			return Slot{c, age * time.Second, i}, true
		}
	}
	return s, false
}

// Leave notes that a connection has ended, or that its client has nothing of an earlier
// process any more.
func (m *Manifest) Leave(s Slot) {
	if m == nil {
		return
	}
	w, _ := m.slot(s.number)
	w.Store(0)
}

// Disown notes that the process of a connection has ended, and the connection has not: which
// process has it is not known.
func (m *Manifest) Disown(s Slot) {
	w, _ := m.slot(s.number)
	w.And(^uint64(pidMask))
}

func (m *Manifest) slot(i int) (w *atomic.Uint64, start []byte) {
	p := m.mem[clientsAt+i*clientBytes:][:clientBytes]
	return (*atomic.Uint64)(unsafe.Pointer(&p[0])), p[8:]
}

// readClients lists the connections of the process before. Numbers of processes that were
// of another namespace are none.
func (l *Left) readClients() {
	space := l.of.mem[spaceAt : spaceAt+8]
	own := processSpace()
	foreign := binary.LittleEndian.Uint64(space) != own
	for i := range MaxClients {
		w, start := l.of.slot(i)
		if w.Load() == 0 {
			continue
		}
		if foreign {
			w.And(^uint64(pidMask))
		}
		word := w.Load()
		c := Client{uint32(word & pidMask), binary.LittleEndian.Uint64(start)}
		l.Clients = append(l.Clients, Slot{c, time.Duration(word>>ageShift) * time.Second, i})
	}
	binary.LittleEndian.PutUint64(space, own)
}

// processSpace is the namespace that numbers of processes are of; 0 where that is not known.
func processSpace() uint64 {
	var st syscall.Stat_t
	if syscall.Stat("/proc/self/ns/pid", &st) != nil {
		return 0
	}
	return st.Ino
}

// ClientOf is the process of a number now.
func ClientOf(pid uint32) Client { return Client{pid, startOf(pid)} }

// Ended reports whether the process has ended, for sure.
func (c Client) Ended() bool {
	if c.PID == 0 {
		return false
	}
	if syscall.Kill(int(c.PID), 0) == syscall.ESRCH {
		return true
	}
	now := startOf(c.PID)
	return c.Start != 0 && now != 0 && now != c.Start
}

// startOf is the 22nd field of /proc/PID/stat; 0 where that cannot be read.
func startOf(pid uint32) uint64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	_, rest, _ := bytes.Cut(text[bytes.LastIndexByte(text, ')')+1:], []byte(" ")) // a name may have anything
	fields := bytes.Fields(rest)
	const field = 22 - 3
	if len(fields) <= field {
		return 0
	}
	n, _ := strconv.ParseUint(string(fields[field]), 10, 64)
	return n
}
