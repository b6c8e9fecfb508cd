package budget

import (
	"math"
	"net"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// Account is what one connection costs. Charge and Release are safe for
// concurrent use. The nil Account bounds nothing.
type Account struct {
	b      *Budget
	holder Holder
	front  Front
	end    func() // closes the connection; called once at most
	outbox outbox

	need atomic.Int64 // charged and not released
	have atomic.Int64 // paid, or less while it is being changed

	// Guarded by Budget.mu.
	paid int64
	gone bool // the connection was ended, or closed its account
}

// Open makes the account of a connection and charges it base bytes, the cost of a
// connection at rest. The budget shuts conn down when the connection must go. The
// error is that of Charge.
func (b *Budget) Open(conn net.Conn, f Front, base int64) (*Account, error) {
	if b == nil {
		return nil, nil
	}
	a := &Account{b: b, holder: HolderOf(conn), front: f, end: func() { Shut(conn) }}
	a.outbox.init(conn)
	return a.open(base)
}

func (a *Account) open(base int64) (*Account, error) {
	b, h := a.b, a.holder
	b.mu.Lock()
	b.holding(h).accounts[a] = struct{}{}
	b.mu.Unlock()
	if err := a.Charge(base); err != nil {
		a.Close()
		return nil, err
	}
	return a, nil
}

// Charge is called before n bytes are allocated. An error means that they must
// not be, and that the connection ends: ErrOver if it has the largest part,
// ErrEnded if it was ended before. It may wait for up to two seconds; no lock may
// be held that a connection takes as it ends.
func (a *Account) Charge(n int64) error {
	if a == nil || n <= 0 {
		return nil
	}
	need := a.need.Add(n)
	for {
		have := a.have.Load()
		if need <= have {
			return nil
		}
		more := (need - have + unitBytes - 1) / unitBytes * unitBytes
		if err := a.b.take(a, more); err != nil {
			a.need.Add(-n)
			return err
		}
		a.have.Add(more)
	}
}

// Release is called after n bytes that were charged are let go of.
func (a *Account) Release(n int64) {
	if a == nil || n <= 0 {
		return
	}
	need := a.need.Add(-n)
	for {
		have := a.have.Load()
		spare := (have - need) / unitBytes * unitBytes
		if spare < 2*unitBytes {
			return
		}
		spare -= unitBytes
		if a.have.CompareAndSwap(have, have-spare) {
			a.b.give(a, spare)
			return
		}
		need = a.need.Load()
	}
}

// Bytes is the charge at present.
func (a *Account) Bytes() int64 {
	if a == nil {
		return 0
	}
	return a.need.Load()
}

// Closed counts that the front closes the connection for a reason of its own.
func (a *Account) Closed(why Reason) {
	if a != nil {
		a.b.closed[a.front][why].Add(1)
	}
}

// Close gives back the charge, but for the bytes that its client has left unread
// in the kernel. The connection is not closed yet, or the kernel cannot be asked.
// Charges fail from then on, and releases have no effect. Closing twice is no
// error.
func (a *Account) Close() {
	if a == nil {
		return
	}
	a.b.haunt(a)
	a.b.mu.Lock()
	if !a.gone {
		a.b.leave(a)
	}
	a.b.mu.Unlock()
	a.have.Store(0)
	a.b.give(a, math.MaxInt64)
	a.b.sockets.Add(-a.outbox.charged.Swap(0))
}

// Held is the charge for something that grows and shrinks, such as a buffer. The
// zero Held of no account bounds nothing. One goroutine uses it at a time.
type Held struct {
	Account *Account
	n       int64
}

// Set is called before it grows to n bytes, or after it has shrunk to them. The
// error is that of Charge, and leaves the charge as it was.
func (h *Held) Set(n int64) error {
	switch d := n - h.n; {
	case d > 0:
		if err := h.Account.Charge(d); err != nil {
			return err
		}
	case d < 0:
		h.Account.Release(-d)
	}
	h.n = n
	return nil
}

// Add is Set with n bytes more.
func (h *Held) Add(n int64) error { return h.Set(h.n + n) }

// Bytes is the charge.
func (h *Held) Bytes() int64 { return h.n }

// freeBytes may lie in a connection's socket without a charge: they are part of
// what a connection costs at rest.
const freeBytes = 64 << 10

// outbox is what the kernel holds for a client that has not read it yet. It is
// charged to the control group of the daemon as its own memory is.
//
// The kernel is asked how much it holds only when the bytes sent since come to
// more than freeBytes, and for all connections before one is ended for the want of
// memory: so a client that has read all loses nothing by not being asked.
type outbox struct {
	raw     syscall.RawConn // nil: no socket
	most    int64           // that the kernel takes
	sent    atomic.Int64    // what may be there, as far as that is known
	pending atomic.Int64    // being written: it is there, or will be
	charged atomic.Int64
}

func (s *outbox) init(conn net.Conn) {
	c, ok := conn.(syscall.Conn)
	if !ok {
		return
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return
	}
	if s.most = sendBuffer(raw); s.most > 0 {
		s.raw = raw
	}
}

// Sending is called before n bytes are written to the socket. One goroutine at a
// time may, and calls Sent when they are written, or as many as the socket takes.
// The error is that of Charge.
func (a *Account) Sending(n int) error {
	if a == nil || a.outbox.raw == nil {
		return nil
	}
	s := &a.outbox
	s.pending.Store(int64(n))
	if s.sent.Add(int64(n)) <= freeBytes {
		return nil
	}
	there := min(unread(s.raw)+int64(n), s.most)
	s.sent.Store(there)
	had, want := s.charged.Load(), max(0, there-freeBytes)
	if want <= had {
		a.settleTo(want)
		return nil
	}
	if err := a.Charge(want - had); err != nil {
		return err
	}
	s.charged.Add(want - had)
	a.b.socketsGrew(want - had)
	return nil
}

// Sent follows Sending.
func (a *Account) Sent() {
	if a != nil {
		a.outbox.pending.Store(0)
	}
}

// settle releases what the client has read.
func (a *Account) settle() {
	s := &a.outbox
	if s.raw == nil || s.charged.Load() == 0 {
		return
	}
	pending := s.pending.Load() // first: what is written meanwhile is unread then
	a.settleTo(max(0, min(unread(s.raw)+pending, s.most)-freeBytes))
}

func (a *Account) settleTo(want int64) {
	s := &a.outbox
	if had := s.charged.Load(); want < had && s.charged.CompareAndSwap(had, want) {
		a.Release(had - want)
		a.b.sockets.Add(want - had)
	}
}

// Shut ends both directions of a connection, so that all that read or write it
// see its end. Unlike Close it leaves the descriptor, by which the kernel can be
// asked.
func Shut(conn net.Conn) {
	half, ok := conn.(interface {
		CloseRead() error
		CloseWrite() error
	})
	if !ok {
		_ = conn.Close()
		return
	}
	_, _ = half.CloseRead(), half.CloseWrite() // they fail where it has ended
}

// sendBuffer is how much a socket holds at most; 0 if that is not known. TCP's
// grows to what the system allows, of which this is the beginning.
func sendBuffer(raw syscall.RawConn) (n int64) {
	_ = raw.Control(func(fd uintptr) { // a closed socket holds nothing
		if most, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_SNDBUF); err == nil {
			n = int64(most)
		}
	})
	return n
}

// unread is how many of the bytes sent the other end has not taken.
func unread(raw syscall.RawConn) (n int64) {
	_ = raw.Control(func(fd uintptr) { // a closed socket holds nothing
		n = queued(int(fd))
	})
	return n
}

// unreadOf is unread of a descriptor. When a TCP connection is reset, the kernel frees
// what was unread and goes on counting it.
func unreadOf(fd int) int64 {
	if info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO); err == nil && info.State == unix.BPF_TCP_CLOSE {
		return 0
	}
	return queued(fd)
}

func queued(fd int) int64 {
	n, err := unix.IoctlGetInt(fd, unix.SIOCOUTQ)
	if err != nil {
		return 0
	}
	return int64(n)
}
