package wire

import (
	"errors"
	"os"
	"sync/atomic"
	"time"
)

// stall is the watch over the progress of the frame that is being received. It
// sets the read deadline when a frame is incomplete and none is set, and leaves
// it when the frame ends: a deadline that strikes later is set anew, or dropped
// between frames. So a connection sets one deadline in a stall at most, and none
// while its frames come whole.
type stall struct {
	after       time.Duration // 0: there is no watch
	frames      uint64        // read so far
	received    int64         // bytes, in all
	armed       bool          // the deadline is set
	frame       uint64        // frames then
	mark        int64         // received then
	interrupted atomic.Bool
}

// arm sets the deadline for the frame that is incomplete, unless one is set.
func (c *Conn) arm() {
	s := &c.stall
	if s.armed {
		return
	}
	s.armed, s.frame, s.mark = true, s.frames, s.received
	c.deadline(time.Now().Add(s.after))
}

// deadline sets the read deadline, unless reads are to end.
func (c *Conn) deadline(at time.Time) {
	_ = c.SetReadDeadline(at) // fails only on a closed socket, as the read will
	if c.stall.interrupted.Load() {
		c.Interrupt()
	}
}

// struck is what the error of a read comes to: nil where a deadline has struck
// and the peer may go on.
func (c *Conn) struck(err error) error {
	s := &c.stall
	if !s.armed || !errors.Is(err, os.ErrDeadlineExceeded) || s.interrupted.Load() {
		return err
	}
	s.armed = false
	c.deadline(time.Time{})
	if c.head < c.tail && s.frame == s.frames && s.received-s.mark < stallBytes {
		return ErrStalled
	}
	return nil
}
