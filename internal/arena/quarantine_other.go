//go:build !linux

package arena

import (
	"context"
	"errors"
	"net"
	"time"
)

// Peer names a process; it needs Linux.
type Peer struct{}

// PeerOf is errors.ErrUnsupported here.
func PeerOf(net.Conn) (*Peer, error) { return nil, errors.ErrUnsupported }

// Ended reports whether the process has ended.
func (*Peer) Ended() bool { return true }

// Kill is errors.ErrUnsupported here.
func (*Peer) Kill(time.Duration) error { return errors.ErrUnsupported }

// Close has nothing to do here.
func (*Peer) Close() error { return nil }

// Quarantine has nothing to keep here: without direct mode no client can write
// the arena.
type Quarantine struct{}

// NewQuarantine returns an empty quarantine.
func NewQuarantine() (*Quarantine, error) { return &Quarantine{}, nil }

// Add takes over one reference of each block and gives it back at once.
func (q *Quarantine) Add(p *Peer, blocks ...Block) {
	q.AddFunc(p, nil, blocks...)
}

// AddFunc is Add, and calls freed (unless nil) afterwards.
func (*Quarantine) AddFunc(_ *Peer, freed func(), blocks ...Block) {
	for _, b := range blocks {
		b.Release()
	}
	if freed != nil {
		freed()
	}
}

// Stats is always zero here.
func (*Quarantine) Stats() QuarantineStats { return QuarantineStats{} }

// Run waits for the end of ctx and returns nil.
func (*Quarantine) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// Close has nothing to do here.
func (*Quarantine) Close() error { return nil }
