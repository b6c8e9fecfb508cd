package budget

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/kvstored/kvstored/internal/base"
)

const (
	// unitBytes is what an account takes from the budget at a time.
	unitBytes = 128 << 10
	// patience is how long a charge waits for the memory of connections that
	// were ended. They have nothing to wait for but their own goroutines.
	patience = 2 * time.Second
	// logBurst is how many lines a minute the log gets of connections that end;
	// all are counted.
	logBurst = 10
)

// ErrOver says that a connection ends because the memory it asked for is not
// there.
var ErrOver = errors.New("the memory for clients is used up, and this connection has the largest part of it; see limits.memory")

// ErrEnded says that the connection was ended before.
var ErrEnded = errors.New("the connection has ended")

// Reason is why a connection was closed that its client would have kept.
type Reason uint8

// The reasons. Those of time are counted by the fronts, see [Account.Closed].
const (
	Memory      Reason = iota // the largest of the holder that has most of limits.memory
	HolderShare               // the largest of a holder that has more than its share
	Stalled                   // no progress within a frame or command
	Unread                    // replies that are not read
	reasons
)

var reasonNames = [reasons]string{"memory", "uid_memory", "stalled", "unread"}

// String is the reason as metrics call it.
func (r Reason) String() string { return reasonNames[r] }

// Front is the protocol of a connection.
type Front uint8

// The fronts.
const (
	Native Front = iota
	RESP
	fronts
)

var frontNames = [fronts]string{"native", "resp"}

// String is the front as metrics call it.
func (f Front) String() string { return frontNames[f] }

// Options of a Budget.
type Options struct {
	Bytes       int64 // of all accounts
	HolderBytes int64 // of the accounts of one holder; 0 = Bytes
	// HeapBytes is what the Go heap and the sockets may have together; 0 = no
	// limit. The runtime keeps to its limit as it allocates; the sockets take
	// memory of which it does not know.
	HeapBytes int64
	Log       zerolog.Logger
}

// Budget is the memory that all connections may cost. It is safe for concurrent
// use. The nil Budget bounds nothing.
type Budget struct {
	o       Options
	closed  [fronts][reasons]atomic.Uint64
	heap    heap
	sockets atomic.Int64  // charged for what lies in sockets
	died    chan struct{} // there are ghosts
	unread  func(fd int) int64
	trim    func()
	// allocated is how many bytes the Go heap has allocated since the start.
	allocated func() int64
	free      func() int64 // pages of it that are free and not given back
	rest      rest         // of Run
	mu        struct {
		sync.Mutex
		used    int64 // of all accounts; at most Bytes
		leaving int64 // of those that were ended and are still there
		given   int64 // given back by accounts since the start
		holders map[Holder]*holding
		ghosts  []ghost
		freed   base.Signal // something was given back
	}
}

// holding is what one holder has.
type holding struct {
	used     int64 // without what is leaving
	leaving  int64 // of its accounts that were ended and are still there
	accounts map[*Account]struct{}
	ghosts   int64 // of used: in sockets of connections that have ended
}

// New makes a budget.
func New(o Options) *Budget {
	o.HolderBytes = cmp.Or(o.HolderBytes, o.Bytes)
	o.Log = o.Log.Sample(&zerolog.BurstSampler{Burst: logBurst, Period: time.Minute})
	b := &Budget{o: o, died: make(chan struct{}, 1), unread: unreadOf, trim: trim, allocated: allocatedBytes, free: freeBytesOfHeap}
	b.mu.holders = make(map[Holder]*holding)
	return b
}

// take adds n bytes to what an account has, or ends it. It waits while others
// that it had ended are still there.
func (b *Budget) take(a *Account, n int64) error {
	if b.fits(a, n) {
		return nil
	}
	b.settle()
	end := time.Now().Add(patience)
	for {
		victims, wait, err := b.tryTake(a, n)
		for _, v := range victims {
			b.dismiss(v)
		}
		if err != nil || wait == nil {
			return err
		}
		select {
		case <-wait:
		case <-time.After(time.Until(end)):
			b.giveUp(a)
			return ErrOver
		}
	}
}

// fits takes n bytes if nothing has to be done for it.
func (b *Budget) fits(a *Account, n int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if a.gone || b.full(b.mu.holders[a.holder], n) {
		return false
	}
	b.add(a, n)
	return true
}

// full reports that n bytes more for a holder are not there yet. What it has leaving
// counts to its share: else its next connections would take, again and again, what others
// may have, while its last ones leave. Called with the mutex held.
func (b *Budget) full(h *holding, n int64) bool {
	return b.mu.used+n > b.o.Bytes || h.used+h.leaving+n > b.o.HolderBytes
}

// add is called with the mutex held.
func (b *Budget) add(a *Account, n int64) {
	b.mu.used += n
	b.mu.holders[a.holder].used += n
	a.paid += n
}

// settle has every account look at what its client has read meanwhile.
func (b *Budget) settle() {
	b.mu.Lock()
	var all []*Account
	for _, h := range b.mu.holders {
		all = slices.AppendSeq(all, maps.Keys(h.accounts))
	}
	b.mu.Unlock()
	for _, a := range all {
		a.settle()
	}
}

// tryTake takes n bytes if they are there. Else it returns what to wait for. The
// victims are to be ended; with an error the account is among them.
func (b *Budget) tryTake(a *Account, n int64) (victims []*Account, wait <-chan struct{}, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if a.gone {
		return nil, nil, ErrEnded
	}
	h := b.mu.holders[a.holder]
	for !a.gone && h.used+n > b.o.HolderBytes {
		victims = append(victims, b.evict(a.holder, a, n, HolderShare))
	}
	for !a.gone && b.mu.used-b.mu.leaving+n > b.o.Bytes {
		victims = append(victims, b.evict(b.largest(a.holder, n), a, n, Memory))
	}
	switch {
	case a.gone:
		return victims, nil, ErrOver
	case b.full(h, n):
		return victims, b.mu.freed.Next(), nil
	}
	b.add(a, n)
	return victims, nil, nil
}

// largest is the holder that has most, if asker had n bytes more. Called with the
// mutex held.
func (b *Budget) largest(asker Holder, n int64) Holder {
	most, used := asker, b.mu.holders[asker].used+n
	for o, h := range b.mu.holders {
		if h.used > used && len(h.accounts) > 0 {
			most, used = o, h.used
		}
	}
	return most
}

// evict marks the largest account of a holder, where the one that asks counts
// with n bytes more, as leaving, and returns it. Called with the mutex held.
func (b *Budget) evict(o Holder, asker *Account, n int64, why Reason) *Account {
	var victim *Account
	most := int64(-1)
	for a := range b.mu.holders[o].accounts {
		size := a.paid
		if a == asker {
			size += n
		}
		if size > most {
			victim, most = a, size
		}
	}
	b.leave(victim)
	b.closed[victim.front][why].Add(1)
	return victim
}

// leave counts what an account has as leaving. Called with the mutex held.
func (b *Budget) leave(a *Account) {
	h := b.mu.holders[a.holder]
	h.used -= a.paid
	h.leaving += a.paid
	delete(h.accounts, a)
	b.drop(a.holder)
	b.mu.leaving += a.paid
	a.gone = true
}

// holding returns what a holder has. Called with the mutex held.
func (b *Budget) holding(o Holder) *holding {
	h := b.mu.holders[o]
	if h == nil {
		h = &holding{accounts: make(map[*Account]struct{})}
		b.mu.holders[o] = h
	}
	return h
}

// drop forgets a holder that has nothing. Called with the mutex held.
func (b *Budget) drop(o Holder) {
	if h := b.mu.holders[o]; len(h.accounts) == 0 && h.ghosts == 0 && h.leaving == 0 {
		delete(b.mu.holders, o)
	}
}

// giveUp ends an account that has waited in vain.
func (b *Budget) giveUp(a *Account) {
	b.mu.Lock()
	gone := a.gone
	if !gone {
		b.leave(a)
		b.closed[a.front][Memory].Add(1)
	}
	b.mu.Unlock()
	if !gone {
		b.dismiss(a)
	}
}

// dismiss ends a connection that is marked as leaving. It does not wait: closing
// a socket may, for a system call under way.
func (b *Budget) dismiss(a *Account) {
	b.o.Log.Warn().Stringer("holder", a.holder).Stringer("front", a.front).Int64("bytes", a.need.Load()).
		Msg("a client's connection is closed: the memory for clients is used up, and it has the largest part of it; see limits.memory")
	go a.end()
}

// give takes n bytes back from an account.
func (b *Budget) give(a *Account, n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n = min(n, a.paid)
	a.paid -= n
	b.mu.used -= n
	b.mu.given += n
	if a.gone && n > 0 {
		b.mu.leaving -= n
		b.mu.holders[a.holder].leaving -= n
		b.drop(a.holder)
	} else if !a.gone {
		b.mu.holders[a.holder].used -= n
	}
	b.mu.freed.Wake()
}

// Stats is a snapshot of a budget.
type Stats struct {
	LimitBytes int64 `json:"limit_bytes"`
	UsedBytes  int64 `json:"used_bytes"`
	// SocketBytes is the part of it that the kernel holds for clients that have
	// not read it.
	SocketBytes int64 `json:"socket_bytes"`
	// Closed counts connections that were closed, by front and reason.
	Closed map[string]map[string]uint64 `json:"closed"`
}

// Stats returns a snapshot; zero for the nil Budget.
func (b *Budget) Stats() (st Stats) {
	if b == nil {
		return st
	}
	b.mu.Lock()
	st.LimitBytes, st.UsedBytes = b.o.Bytes, b.mu.used
	b.mu.Unlock()
	st.SocketBytes = b.sockets.Load()
	st.Closed = make(map[string]map[string]uint64)
	for f := range fronts {
		st.Closed[f.String()] = make(map[string]uint64)
		for r := range reasons {
			st.Closed[f.String()][r.String()] = b.closed[f][r].Load()
		}
	}
	return st
}
