package resp

import (
	"bytes"
	"errors"
	"net"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kvstored/kvstored/internal/blob"
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
	// maxVec is how many pieces one system call takes.
	maxVec = 1024
)

// piece is a part of the replies: bytes, and the value they lie in if any.
type piece struct {
	b     []byte
	value blob.Value
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
	writing int64 // charged for what the writer has in hand; the writer's

	base   []byte  // room for buf
	buf    []byte  // the end of the replies
	pieces []piece // what comes before it
	vec    net.Buffers

	mu struct {
		sync.Mutex
		idle  sync.Cond // the writer has done something
		busy  bool      // the writer runs
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

func (o *output) text(s string) {
	o.header('$', int64(len(s)))
	o.buf = append(append(o.buf, s...), '\r', '\n')
	o.relieve()
}

// relieve keeps the many parts of one reply from being gathered without limit.
func (o *output) relieve() {
	if o.pending() > flushBytes {
		o.flush()
	}
}

// value answers a value, which it owns from then on.
func (o *output) value(v blob.Value) {
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

// pending is how much was gathered.
func (o *output) pending() int { return len(o.buf) }

// due reports whether flush has anything to write.
func (o *output) due() bool { return len(o.buf)+len(o.pieces) > 0 }

// flush writes the replies, or hands them to the writer.
func (o *output) flush() {
	o.cut()
	if len(o.pieces) == 0 {
		return
	}
	if !o.hand(o.pieces) {
		n, _, err := o.write(&o.vec, o.pieces, patience)
		release(o.pieces[:n])
		if n < len(o.pieces) {
			o.startWriter(o.pieces[n:], err)
		}
	}
	clear(o.pieces)
	o.pieces, o.buf = o.pieces[:0], o.base[:0]
}

// write returns how many pieces went out whole, and how many bytes. The next piece
// in ps keeps the bytes that did not go out. With fewer than all comes an error.
func (o *output) write(vec *net.Buffers, ps []piece, wait time.Duration) (n int, sent int64, err error) {
	all := (*vec)[:0]
	for i := range ps {
		all = append(all, ps[i].b)
	}
	*vec = all
	if err = o.account.Sending(size(ps)); err == nil {
		sent = o.try(vec)
	}
	if err == nil && len(*vec) > 0 {
		var late int64
		if err = o.conn.SetWriteDeadline(time.Now().Add(wait)); err == nil {
			late, err = vec.WriteTo(o.conn)
			sent += late
		}
		if err == nil {
			err = o.conn.SetWriteDeadline(time.Time{})
		}
	}
	o.account.Sent()
	o.wrote(sent)
	left := len(*vec)
	if left > 0 {
		ps[len(ps)-left].b = (*vec)[0]
	}
	*vec = all[:0]
	clear(all)
	return len(ps) - left, sent, err
}

// try writes what the socket takes at once, without the cost of a deadline.
func (o *output) try(vec *net.Buffers) (sent int64) {
	if o.raw == nil || len(*vec) > maxVec {
		return 0
	}
	_ = o.raw.Write(func(fd uintptr) bool { // what fails will fail again
		n, err := unix.Writev(int(fd), *vec)
		if err == nil {
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

// hand gives pieces to the writer if it runs, and drops them once a write or a
// charge has failed. It reports false if the writer is idle.
func (o *output) hand(ps []piece) bool {
	o.mu.Lock()
	idle := !o.mu.busy && o.mu.err == nil
	o.mu.Unlock()
	if idle {
		return false // only this goroutine starts the writer
	}
	if err := o.account.Charge(int64(cost(ps))); err != nil {
		o.giveUp(ps, err)
		return true
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.mu.err != nil:
		o.account.Release(int64(cost(ps)))
		release(ps)
		return true
	case !o.mu.busy:
		o.account.Release(int64(cost(ps)))
		return false
	}
	o.push(ps)
	for o.mu.busy && o.mu.bytes > maxQueue {
		o.mu.idle.Wait()
	}
	return true
}

// giveUp drops pieces, and sets the error that has all later ones dropped.
func (o *output) giveUp(ps []piece, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.mu.err = err
	release(ps)
}

// push copies pieces, whose bytes the next replies will be written over, into the
// queue. It is called with the mutex held.
func (o *output) push(ps []piece) {
	o.mu.bytes += cost(ps)
	for _, p := range ps {
		if !p.held {
			p.b = bytes.Clone(p.b)
		}
		o.mu.queue = append(o.mu.queue, p)
	}
}

// startWriter lets a goroutine write what a client did not take, unless it is
// gone.
func (o *output) startWriter(ps []piece, err error) {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = o.account.Charge(int64(cost(ps)))
	}
	if err != nil {
		o.giveUp(ps, err)
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.push(ps)
	o.mu.busy = true
	go o.writer()
}

// writer ends when there is nothing left to write.
func (o *output) writer() {
	var vec net.Buffers
	for ps := o.next(nil, nil); ps != nil; {
		n, sent, err := o.write(&vec, ps, o.stall)
		release(ps[:n])
		if errors.Is(err, os.ErrDeadlineExceeded) {
			if sent > 0 {
				err = nil
			} else {
				o.account.Closed(budget.Unread)
			}
		}
		if err != nil {
			release(ps[n:])
			budget.Shut(o.conn) // ends the connection's own goroutine too
			n = len(ps)
		}
		ps = o.next(ps[n:], err)
	}
}

// next returns the pieces to write: the rest of the last ones, then the queue.
func (o *output) next(left []piece, err error) []piece {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.mu.idle.Broadcast()
	if err != nil {
		o.mu.err = err
		release(o.mu.queue)
		o.mu.queue = nil
	}
	if len(left) > 0 {
		return left
	}
	o.account.Release(o.writing)
	ps := o.mu.queue
	o.writing = int64(o.mu.bytes)
	o.mu.queue, o.mu.bytes = nil, 0
	if o.mu.busy = len(ps) > 0; !o.mu.busy {
		o.account.Release(o.writing) // of a queue that was dropped
		o.writing = 0
	}
	return ps
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
