package client

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kvstored/kvstored/internal/wire"
)

const (
	// The daemon is told of reads that it was not asked for with any other request, and
	// else when so many or so many bytes of them wait, or one that is so old.
	mostUntold      = 64
	mostUntoldBytes = 64 << 10
	untoldFor       = time.Second
	// glanceEvery is how old the last look at the socket may be where a read begins without
	// asking. The memory of a daemon that is gone stays as it is: the next one, which may
	// delete what is still there, takes longer than that to start.
	glanceEvery = time.Millisecond
)

// untold are the reads that the daemon is not told of yet. The mutex may be held where that
// of the link is taken.
type untold struct {
	off     atomic.Bool  // the user may not read any more: the daemon is asked for every chunk
	some    atomic.Bool  // there are reads
	glanced atomic.Int64 // when the socket was looked at, in ns since began
	mu      struct {
		sync.Mutex
		reads wire.Reads
		n     int
		since time.Duration // of the first, since began
	}
}

// began is what times of reads are counted from.
var began = time.Now()

// unaskedMay reports whether chunks may be read now without asking: the daemon lives, and
// has not said no.
func (l *link) unaskedMay() bool {
	u := &l.untold
	if now := time.Since(began); now-time.Duration(u.glanced.Load()) >= glanceEvery {
		if !l.glance() {
			return false
		}
		u.glanced.Store(int64(now)) // only now: a read beside this one looks for itself meanwhile
	}
	select {
	case <-l.down:
		return false
	default:
		return !u.off.Load()
	}
}

// told notes a read, and sends all if it is time. It does not wait for the answer: a later
// glance takes that from the socket. The next call that waits learns of an error. Where
// enough wait already, because the daemon takes no requests now, the read stays untold.
func (l *link) told(ctx context.Context, ch *wire.Chain) {
	u, now := &l.untold, time.Since(began)
	u.mu.Lock()
	if u.mu.n == 0 {
		u.mu.since = now
		u.some.Store(true)
	}
	if u.mu.n < wire.MaxReads && len(u.mu.reads) < mostUntoldBytes {
		u.mu.reads = u.mu.reads.Add(ch)
		u.mu.n++
	}
	due := u.mu.n >= mostUntold || len(u.mu.reads) >= mostUntoldBytes || now-u.mu.since >= untoldFor
	u.mu.Unlock()
	if due {
		_ = l.send(ctx, 0, nil)
	}
}

// tell appends a request that tells of all reads, if there are some, to requests that
// wait. Behind many that could not be sent there is none.
func (l *link) tell(dst []byte) []byte {
	u := &l.untold
	if !u.some.Load() || len(dst) >= mostUntoldBytes {
		return dst
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	c := &call{op: wire.OpRead, done: make(chan struct{}, 1), left: true}
	if u.mu.n > 0 && !u.off.Load() && l.register(c) == nil {
		dst = wire.AppendRequest(dst, wire.OpRead, c.id, &wire.ReadRequest{Reads: u.mu.reads})
	}
	u.mu.reads, u.mu.n = u.mu.reads[:0], 0
	u.some.Store(false)
	return dst
}

// farewell sends the last reads if that takes no waiting.
func (l *link) farewell() {
	select {
	case <-l.writer:
		if l.out = l.tell(l.out[:0]); len(l.out) > 0 {
			_, _ = l.conn.TryWrite(l.out) // the link ends now
		}
		l.writer <- struct{}{}
	default:
	}
}
