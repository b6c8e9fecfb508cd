package resp

import (
	"bytes"
	"cmp"
	"errors"
	"net"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kvstored/kvstored/internal/budget"
)

const (
	// inPlace is the longest value that is copied into the replies; longer ones
	// go out of the arena.
	inPlace = 4 << 10
	// flushBytes is how much is gathered while more commands are there already.
	flushBytes = 16 << 10
	// patience is how long the connection's own goroutine waits for a client
	// that does not read. It may be sending: then both would wait for ever.
	patience = 10 * time.Millisecond
	// maxQueue is how much memory may wait for it then, before no more of its
	// commands are executed. Values in the arena have the limit of leases.
	maxQueue = 32 << 20
	// pieceBytes is what a piece costs that lies in the arena.
	pieceBytes = 128
)

// piece is a part of the replies: bytes, and the value they lie in if any.
type piece struct {
	b     []byte
	value Value
	held  bool
}

// output writes replies, in order. All but the writer's own methods are for
// the connection's goroutine.
//
// Pieces for the writer's queue are charged before they enter it. Their bytes are
// copied, but for values, so that a piece costs no more than it has.
type output struct {
	conn    net.Conn
	account *budget.Account
	speaks  protocol
	raw     syscall.RawConn // nil: conn is no socket
	stall   time.Duration   // without any progress, after which the client is given up
	wrote   func(n int64)

	base   []byte  // room for buf
	buf    []byte  // the end of the replies
	pieces []piece // what comes before it
	vec    net.Buffers

	mu struct {
		sync.Mutex
		idle  sync.Cond // the writer has done something
		busy  bool      // the writer runs, and nothing else writes
		queue []piece   // its work
		bytes int       // in queue
		err   error     // of any write; there will be no more
	}
}

func newOutput(conn net.Conn, account *budget.Account, stall time.Duration, wrote func(int64)) *output {
	o := &output{conn: conn, account: account, speaks: resp2, stall: stall, wrote: wrote}
	o.mu.idle.L = &o.mu.Mutex
	o.base = make([]byte, 0, flushBytes+inPlace+64)
	o.buf = o.base
	if socket, ok := conn.(syscall.Conn); ok {
		o.raw, _ = socket.SyscallConn()
	}
	return o
}

func (o *output) simple(s string) { o.line('+', s) }
func (o *output) error(s string)  { o.line('-', s) }
func (o *output) integer(n int64) { o.header(':', n) }
func (o *output) array(n int)     { o.header('*', int64(n)) }

func (o *output) line(kind byte, s string) {
	o.buf = append(append(append(o.buf, kind), s...), '\r', '\n')
}

func (o *output) header(kind byte, n int64) {
	o.buf = append(strconv.AppendInt(append(o.buf, kind), n, 10), '\r', '\n')
}

func (o *output) bulk(b []byte) {
	o.header('$', int64(len(b)))
	o.buf = append(append(o.buf, b...), '\r', '\n')
	o.relieve()
}

func (o *output) text(s string) { o.bulk([]byte(s)) }

// relieve keeps the many parts of one reply from being gathered without limit.
func (o *output) relieve() {
	if len(o.buf) > flushBytes {
		o.flush()
	}
}

// value answers a value, which it owns from then on.
func (o *output) value(v Value) {
	b := v.Bytes()
	if len(b) <= inPlace {
		o.bulk(b)
		v.Release()
		return
	}
	o.header('$', int64(len(b)))
	o.cut()
	o.pieces = append(o.pieces, piece{b: b, value: v, held: true})
	o.buf = append(o.buf, '\r', '\n')
	o.flush()
}

// cut makes a piece of the bytes gathered in buf.
func (o *output) cut() {
	if len(o.buf) > 0 {
		o.pieces = append(o.pieces, piece{b: o.buf})
		o.buf = o.buf[len(o.buf):] // what follows lies behind it
	}
}

// flush writes the replies, or hands them to the writer.
func (o *output) flush() {
	o.cut()
	if len(o.pieces) == 0 {
		return
	}
	left, err := o.pieces, error(nil)
	if o.direct() {
		left, _, err = o.send(left, patience)
	}
	if len(left) > 0 {
		o.queue(left, err)
	}
	clear(o.pieces)
	o.pieces, o.buf = o.pieces[:0], o.base[:0]
}

// direct reports whether the connection's goroutine may write: only that starts the
// writer.
func (o *output) direct() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return !o.mu.busy && o.mu.err == nil
}

// send writes pieces and releases those that went out whole. It returns those that are
// left, with the reason, and how many bytes went out.
func (o *output) send(ps []piece, wait time.Duration) (left []piece, sent int64, err error) {
	all := o.vec[:0]
	for i := range ps {
		all = append(all, ps[i].b)
	}
	rest := all
	if err = o.account.Sending(size(ps)); err == nil {
		sent = o.try(&rest)
	}
	if err == nil && len(rest) > 0 {
		if err = o.conn.SetWriteDeadline(time.Now().Add(wait)); err == nil {
			var late int64
			late, err = rest.WriteTo(o.conn)
			sent += late
		}
		if err == nil {
			err = o.conn.SetWriteDeadline(time.Time{})
		}
	}
	o.account.Sent()
	o.wrote(sent)
	n := len(ps) - len(rest)
	release(ps[:n])
	if n < len(ps) {
		ps[n].b = rest[0]
	}
	clear(all)
	o.vec = all
	return ps[n:], sent, err
}

// try writes what the socket takes at once, without the cost of a deadline. What fails
// will fail again.
func (o *output) try(vec *net.Buffers) (sent int64) {
	if o.raw == nil {
		return 0
	}
	_ = o.raw.Write(func(fd uintptr) bool {
		if n, err := unix.Writev(int(fd), *vec); err == nil {
			sent = int64(n)
		}
		return true
	})
	left := int(sent)
	for len(*vec) > 0 && left >= len((*vec)[0]) {
		left -= len((*vec)[0])
		*vec = (*vec)[1:]
	}
	if left > 0 {
		(*vec)[0] = (*vec)[0][left:]
	}
	return sent
}

func release(ps []piece) {
	for i := range ps {
		if ps[i].held {
			ps[i].value.Release()
		}
	}
}

// size is how many bytes pieces have.
func size(ps []piece) (n int) {
	for i := range ps {
		n += len(ps[i].b)
	}
	return n
}

// cost is what pieces take while they wait.
func cost(ps []piece) (n int) {
	for i := range ps {
		n += pieceBytes
		if !ps[i].held {
			n += len(ps[i].b)
		}
	}
	return n
}

// queue hands pieces to the writer, and starts it where none runs; why says why they were
// not written. Once a write or a charge has failed it drops them.
func (o *output) queue(ps []piece, why error) {
	if why == nil || errors.Is(why, os.ErrDeadlineExceeded) {
		why = o.account.Charge(int64(cost(ps)))
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if why != nil || o.mu.err != nil {
		if why == nil {
			o.account.Release(int64(cost(ps)))
		}
		o.mu.err = cmp.Or(o.mu.err, why)
		release(ps)
		return
	}
	o.mu.bytes += cost(ps)
	for _, p := range ps {
		if !p.held {
			p.b = bytes.Clone(p.b) // the next replies will be written over it
		}
		o.mu.queue = append(o.mu.queue, p)
	}
	if !o.mu.busy {
		o.mu.busy = true
		go o.writer()
	}
	for o.mu.busy && o.mu.bytes > maxQueue {
		o.mu.idle.Wait()
	}
}

// writer ends when there is nothing left to write.
func (o *output) writer() {
	for ps, charged := o.take(nil); len(ps) > 0; {
		err := o.sendAll(ps)
		o.account.Release(int64(charged))
		ps, charged = o.take(err)
	}
}

// sendAll writes pieces as long as the client takes some. After an error the connection is
// shut, which ends its own goroutine too.
func (o *output) sendAll(ps []piece) error {
	for len(ps) > 0 {
		left, sent, err := o.send(ps, o.stall)
		if ps = left; err == nil || sent > 0 && errors.Is(err, os.ErrDeadlineExceeded) {
			continue
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			o.account.Closed(budget.Unread)
		}
		release(ps)
		budget.Shut(o.conn)
		return err
	}
	return nil
}

// take returns the queue, and the bytes charged for it; after an error it drops it.
func (o *output) take(err error) (ps []piece, charged int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.mu.idle.Broadcast()
	ps, charged = o.mu.queue, o.mu.bytes
	o.mu.queue, o.mu.bytes = nil, 0
	if o.mu.err = cmp.Or(o.mu.err, err); err != nil {
		o.account.Release(int64(charged))
		release(ps)
		ps = nil
	}
	o.mu.busy = len(ps) > 0
	return ps, charged
}

// drain waits until all that was flushed is written, or will not be, and
// reports whether there was anything to wait for.
func (o *output) drain() (waited bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for o.mu.busy {
		waited = true
		o.mu.idle.Wait()
	}
	return waited
}

// failed says why nothing can be written any more.
func (o *output) failed() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.mu.err
}
