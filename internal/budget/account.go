package budget

import (
	"math"
	"net"
	"sync/atomic"
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
	a := &Account{b: b, holder: holderOf(conn), front: f, end: func() { Shut(conn) }}
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

// Bytes is the charge.
func (h *Held) Bytes() int64 { return h.n }
