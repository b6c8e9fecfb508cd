package manifest

import (
	"encoding/binary"
	"sync/atomic"
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
	number int
}

// taken is a bit of a slot's first word that a free one has not.
const taken = 1 << 32

// Join notes that a connection maps the arena, before it gets the descriptor. It is false
// where there is no slot for one more.
func (m *Manifest) Join(c Client) (s Slot, ok bool) {
	if m == nil {
		return s, true
	}
	m.slots.Lock()
	defer m.slots.Unlock()
	for i := range MaxClients {
		if w, start := m.slot(i); w.Load() == 0 {
			binary.LittleEndian.PutUint64(start, c.Start)
			w.Store(taken | uint64(c.PID))
			return Slot{c, i}, true
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
	w.Store(taken)
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
			w.Store(taken)
		}
		l.Clients = append(l.Clients, Slot{Client{uint32(w.Load()), binary.LittleEndian.Uint64(start)}, i})
	}
	binary.LittleEndian.PutUint64(space, own)
}
