package server

import (
	"sync"
	"time"

	"github.com/kvstored/kvstored/internal/wire"
)

const (
	// maxQueued is how many bytes may wait for a client that does not read,
	// and maxStalled for how long, before its connection is closed.
	maxQueued  = 1 << 20
	maxStalled = 5 * time.Second
)

// output is the frames on their way to one client. Whoever has a frame writes
// it at once if nobody else is writing; what the socket does not take waits
// in a queue that a goroutine of its own drains. Pushes are built when their
// turn comes, so that at most one per job waits and the newest state wins.
type output struct {
	conn  *wire.Conn
	spawn func(func()) // runs drain
	mu    struct {
		sync.Mutex
		busy   bool // somebody writes
		queue  []byte
		pushes []*job
		stall  *time.Timer   // running while the queue is too long
		below  chan struct{} // closed when the queue is short again; nil if it is
	}
	spare []byte // the writer's: the queue's other buffer
	frame []byte // the writer's: the push being sent
}

// send sends whole frames. p may be reused when it returns.
func (o *output) send(p []byte) {
	o.mu.Lock()
	if o.mu.busy {
		o.enqueue(p)
		o.mu.Unlock()
		return
	}
	o.mu.busy = true
	o.mu.Unlock()
	o.write(p)
}

// push sends the newest state of j when the socket has room.
func (o *output) push(j *job) {
	o.mu.Lock()
	if j.queued {
		o.mu.Unlock()
		return
	}
	j.queued = true
	o.mu.pushes = append(o.mu.pushes, j)
	if o.mu.busy {
		o.mu.Unlock()
		return
	}
	o.mu.busy = true
	o.mu.Unlock()
	o.write(nil)
}

// write sends p and then whatever has come up meanwhile, as long as the
// socket takes it; the rest is left to drain. The caller has set busy.
func (o *output) write(p []byte) {
	for p = o.next(p); p != nil; p = o.next(nil) {
		n, err := o.conn.TryWrite(p)
		if err != nil {
			_ = o.conn.Close() // the reader notices and ends the session
			n = len(p)
		}
		if n == len(p) {
			continue
		}
		rest := append([]byte(nil), p[n:]...)
		o.spawn(func() { o.drain(rest) })
		return
	}
}

// drain waits for the socket. A client that takes less than maxQueued in
// maxStalled while more than that is left loses its connection.
func (o *output) drain(p []byte) {
	for ; p != nil; p = o.next(nil) {
		for len(p) > 0 {
			piece, limit := p[:min(len(p), maxQueued)], time.Time{}
			if len(p) > maxQueued {
				limit = time.Now().Add(maxStalled)
			}
			_ = o.conn.SetWriteDeadline(limit) // fails only on a closed socket, as the write will
			if _, err := o.conn.Write(piece); err != nil {
				_ = o.conn.Close()
			}
			p = p[len(piece):]
		}
	}
}

// next returns what to write: p if there is any, else the queue, else a push.
// When there is nothing it gives up busy and returns nil.
func (o *output) next(p []byte) []byte {
	if len(p) > 0 {
		return p
	}
	for {
		o.mu.Lock()
		if len(o.mu.queue) > 0 {
			p, o.mu.queue = o.mu.queue, o.spare[:0]
			o.spare = p
			o.relieved()
			o.mu.Unlock()
			return p
		}
		if len(o.mu.pushes) == 0 {
			o.mu.busy = false
			o.mu.Unlock()
			return nil
		}
		j := o.mu.pushes[0]
		o.mu.pushes = o.mu.pushes[1:]
		j.queued = false
		o.mu.Unlock()
		if o.frame = j.appendPush(o.frame[:0]); len(o.frame) > 0 {
			return o.frame
		}
	}
}

// enqueue is called with the mutex held.
func (o *output) enqueue(p []byte) {
	o.mu.queue = append(o.mu.queue, p...)
	if len(o.mu.queue) > maxQueued && o.mu.stall == nil {
		o.mu.below = make(chan struct{})
		o.mu.stall = time.AfterFunc(maxStalled, func() { _ = o.conn.Close() })
	}
}

// relieved is called with the mutex held when the queue became short.
func (o *output) relieved() {
	if o.mu.stall != nil {
		o.mu.stall.Stop()
		o.mu.stall = nil
		close(o.mu.below)
		o.mu.below = nil
	}
}

// room returns a channel that is closed when the queue is short enough for
// more, or nil if it is now. A connection that closes relieves its queue.
func (o *output) room() <-chan struct{} {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.mu.below
}
