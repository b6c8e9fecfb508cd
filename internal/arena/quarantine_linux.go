package arena

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

// Quarantine keeps blocks out of use for as long as a process could still
// write them: in direct mode a mapping cannot be taken back, so what a client
// was filling when it left stays untouched until its process has ended.
//
// It trusts that the process did not hand its mapping on: children it forked
// are not waited for. It is safe for concurrent use; only Run releases what
// Add did not.
type Quarantine struct {
	wake *os.File // an eventfd that gets Run out of poll

	mu struct {
		sync.Mutex
		holds []*hold // appended by Add, removed by Run only
		stats QuarantineStats
	}
}

// hold is what waits for the end of one process.
type hold struct {
	peer   *Peer
	blocks []Block
	freed  []func()
}

// NewQuarantine returns an empty quarantine. The caller keeps Run running, and
// closes it after Run has returned.
func NewQuarantine() (*Quarantine, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("arena: quarantine: eventfd: %w", err)
	}
	return &Quarantine{wake: os.NewFile(uintptr(fd), "quarantine eventfd")}, nil
}

// Add takes over one reference of each block and gives it back when the
// process has ended, at once if it has already. It cannot fail. The peer stays
// the caller's to close.
func (q *Quarantine) Add(p *Peer, blocks ...Block) {
	q.AddFunc(p, nil, blocks...)
}

// AddFunc is Add, and calls freed (unless nil) once after the references were
// given back: from Run, or before it returns when the process has ended.
func (q *Quarantine) AddFunc(p *Peer, freed func(), blocks ...Block) {
	h := &hold{peer: p.retain(), blocks: slices.Clone(blocks)}
	if freed != nil {
		h.freed = append(h.freed, freed)
	}
	if p.Ended() {
		h.release()
		return
	}
	if q.add(h) {
		q.signal()
		return
	}
	// Another hold waits for this process already; at worst this closes a
	// second descriptor of it.
	_ = h.peer.Close()
}

// add puts h among the holds and reports whether Run has to wait for its peer.
func (q *Quarantine) add(h *hold) (wait bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.mu.stats.add(h, 1)
	for _, o := range q.mu.holds {
		// One hold per process, lest a client that leaves and comes back uses
		// up descriptors. While both live, equal numbers are the same process.
		if o.peer.pid == h.peer.pid && o.peer.pid != 0 && !o.peer.Ended() {
			o.blocks = append(o.blocks, h.blocks...)
			o.freed = append(o.freed, h.freed...)
			return false
		}
	}
	q.mu.holds = append(q.mu.holds, h)
	q.mu.stats.Peers++
	return true
}

func (s *QuarantineStats) add(h *hold, sign int) {
	s.Blocks += sign * len(h.blocks)
	for _, b := range h.blocks {
		s.Bytes += int64(sign * len(b.Padded()))
	}
}

// Stats returns a snapshot.
func (q *Quarantine) Stats() QuarantineStats {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.mu.stats
}

// Run gives back blocks held for processes as they end, until ctx ends; then
// it returns nil and leaves the rest held. It sleeps in poll(2) meanwhile, at
// the price of one thread.
func (q *Quarantine) Run(ctx context.Context) error {
	woken := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		q.signal()
		close(woken)
	})
	for ctx.Err() == nil {
		if err := q.wait(); err != nil {
			if !stop() {
				<-woken
			}
			return fmt.Errorf("arena: quarantine: %w", err)
		}
	}
	<-woken // the eventfd may be closed as soon as Run has returned
	return nil
}

// wait sleeps until a process has ended or a signal comes, and releases.
func (q *Quarantine) wait() error {
	q.mu.Lock()
	holds := q.mu.holds[:len(q.mu.holds):len(q.mu.holds)]
	q.mu.Unlock()
	fds := make([]unix.PollFd, 1+len(holds))
	fds[0] = unix.PollFd{Fd: int32(q.wake.Fd()), Events: unix.POLLIN}
	for i, h := range holds {
		fds[1+i] = unix.PollFd{Fd: int32(h.peer.fd.Fd()), Events: unix.POLLIN}
	}
	_, err := unix.Poll(fds, -1)
	if errors.Is(err, unix.EINTR) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("poll of %d descriptors: %w", len(fds), err)
	}
	if fds[0].Revents != 0 {
		var count [8]byte
		if _, err := q.wake.Read(count[:]); err != nil {
			return err
		}
	}
	q.release(fds[1:])
	return nil
}

// release gives back the holds whose descriptor reports something; fds are
// those of the first holds, in order.
func (q *Quarantine) release(fds []unix.PollFd) {
	var ended []*hold
	q.mu.Lock()
	var rest []*hold
	for i, h := range q.mu.holds {
		if i >= len(fds) || fds[i].Revents == 0 {
			rest = append(rest, h)
			continue
		}
		ended = append(ended, h)
		q.mu.stats.add(h, -1)
		q.mu.stats.Peers--
	}
	q.mu.holds = rest
	q.mu.Unlock()
	for _, h := range ended {
		h.release()
	}
}

func (h *hold) release() {
	for _, b := range h.blocks {
		b.Release()
	}
	// The process is gone, and its descriptor was only read.
	_ = h.peer.Close()
	for _, f := range h.freed {
		f()
	}
}

// signal gets Run out of poll.
func (q *Quarantine) signal() {
	var one [8]byte
	binary.NativeEndian.PutUint64(one[:], 1)
	if _, err := q.wake.Write(one[:]); err != nil {
		panic(fmt.Sprintf("arena: quarantine used after Close: %v", err))
	}
}

// Close gives everything back, processes alive or not: the arena must not hand
// out memory anymore. Nothing may be called after it.
func (q *Quarantine) Close() error {
	q.mu.Lock()
	holds := q.mu.holds
	q.mu.holds = nil
	q.mu.stats = QuarantineStats{}
	q.mu.Unlock()
	for _, h := range holds {
		h.release()
	}
	return q.wake.Close()
}
