package server

import (
	"slices"
	"sync"
	"time"

	"github.com/kvstored/kvstored/internal/base"
	"github.com/kvstored/kvstored/internal/budget"
	"github.com/kvstored/kvstored/internal/wire"
)

// output is the frames on their way to one client. A goroutine writes its
// frame at once if no other is writing; bytes that the socket does not take wait
// in a queue that a goroutine of its own drains. There is one writer at a
// time, so frames arrive in the order in which they were built.
//
// Pushes are built when their turn comes, so that at most one per job waits
// and the newest state wins.
//
// What waits is charged before it is copied into the queue.
type output struct {
	conn    *wire.Conn
	account *budget.Account
	limits  *Limits
	spawn   func(func()) // runs drain
	mu      struct {
		sync.Mutex
		busy   bool // somebody writes
		queue  []byte
		unsent int // bytes that drain has taken from the queue and not yet sent
		pushes []*job
		stall  *time.Timer // running while too much waits
		below  base.Signal // little waits again
	}
	spare   []byte      // the writer's: the queue's other buffer
	frame   []byte      // the writer's: the push being sent
	charged int64       // the writer's: for what it is sending, but for a push
	pushed  budget.Held // the writer's: for frame
}

// send sends whole frames. p may be reused when it returns.
func (o *output) send(p []byte) {
	if o.begin() {
		o.write(p)
		return
	}
	if o.account.Charge(int64(len(p))) != nil {
		return // the connection ends
	}
	o.mu.Lock()
	if o.mu.busy {
		o.mu.queue = append(o.mu.queue, p...)
		o.watch()
		o.mu.Unlock()
		return
	}
	o.mu.busy = true
	o.mu.Unlock()
	o.account.Release(int64(len(p)))
	o.write(p)
}

// begin makes the caller the writer unless there is one.
func (o *output) begin() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.mu.busy {
		return false
	}
	o.mu.busy = true
	return true
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

// write sends p and then the frames that have come meanwhile, as long as the
// socket takes it; the rest is left to drain. The caller has set busy.
func (o *output) write(p []byte) {
	for p = o.next(p); p != nil; p = o.next(nil) {
		n, err := 0, o.account.Sending(len(p))
		if err == nil {
			n, err = o.conn.TryWrite(p)
			o.account.Sent()
		}
		if err == nil && n < len(p) && o.charged == 0 {
			if err = o.account.Charge(int64(len(p) - n)); err == nil {
				o.charged = int64(len(p) - n)
			}
		}
		if err != nil {
			o.conn.Shut() // the reader notices and ends the session
			n = len(p)
		}
		if n == len(p) {
			continue
		}
		rest := slices.Clone(p[n:])
		o.spawn(func() { o.drain(rest) })
		return
	}
}

// drain waits for the socket. A client that takes less than a QueueBytes in a
// StallTimeout, while more than that waits, loses its connection.
func (o *output) drain(p []byte) {
	for ; p != nil; p = o.next(nil) {
		for len(p) > 0 {
			o.progress(len(p))
			piece := p[:min(len(p), o.limits.QueueBytes)]
			err := o.account.Sending(len(piece))
			if err == nil {
				_, err = o.conn.Write(piece)
				o.account.Sent()
			}
			if err != nil {
				o.conn.Shut()
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
	o.account.Release(o.charged)
	o.charged = 0
	for {
		o.mu.Lock()
		o.mu.unsent = 0
		if len(o.mu.queue) > 0 {
			p, o.mu.queue, o.spare = o.mu.queue, o.spare, nil
			o.charged = int64(len(p))
			if cap(p) <= flushBytes { // one large reply must not cost its size for ever
				o.spare = p[:0]
			}
			o.watch()
			o.mu.Unlock()
			return p
		}
		o.watch()
		if len(o.mu.pushes) == 0 {
			o.mu.busy = false
			o.mu.Unlock()
			return nil
		}
		j := o.mu.pushes[0]
		o.mu.pushes = slices.Delete(o.mu.pushes, 0, 1)
		j.queued = false
		o.mu.Unlock()
		if cap(o.frame) > o.limits.QueueBytes {
			o.frame = nil
		}
		var more bool
		if o.frame, more = j.appendPush(o.frame[:0]); more {
			o.push(j) // this goroutine is the writer, and comes to it next
		}
		_ = o.pushed.Set(int64(cap(o.frame))) // else the connection ends
		if len(o.frame) > 0 {
			return o.frame
		}
	}
}

// progress notes that drain has n bytes left.
func (o *output) progress(n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.mu.unsent = n
	if o.mu.stall != nil {
		o.mu.stall.Reset(o.limits.StallTimeout)
	}
	o.watch()
}

// watch starts and ends the stall as the amount that waits changes; called
// with the mutex held.
func (o *output) watch() {
	much := len(o.mu.queue)+o.mu.unsent > o.limits.QueueBytes
	switch {
	case much && o.mu.stall == nil:
		o.mu.stall = time.AfterFunc(o.limits.StallTimeout, func() {
			o.account.Closed(budget.Unread)
			o.conn.Shut()
		})
	case !much && o.mu.stall != nil:
		o.mu.stall.Stop()
		o.mu.stall = nil
		o.mu.below.Wake()
	}
}

// room returns a channel that is closed when little enough waits for more, or
// nil if that is so now. A connection that closes gives room.
func (o *output) room() <-chan struct{} {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.mu.stall == nil {
		return nil
	}
	return o.mu.below.Next()
}
