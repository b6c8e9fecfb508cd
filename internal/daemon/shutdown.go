package daemon

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kvstored/kvstored/internal/stack"
	"github.com/kvstored/kvstored/tier"
)

const (
	// EndTimeout is how long the end of a daemon takes at most, the flush aside.
	EndTimeout = 5 * time.Second
	// clientsTimeout is how much of it is for clients: they lose their connections
	// after two seconds at most.
	clientsTimeout = 3 * time.Second
	// hangTimeout is how much of it is for a flush that does not keep to its time.
	hangTimeout = time.Second
)

// errTimeout is an end that something held up until its time was over.
var errTimeout = errors.New("it is abandoned, as by a kill; what was written is found again")

// shutdown lets go of the clients, flushes, and closes everything bottom-up. It is
// called when serving is over, by a signal or for a failure. It returns within
// EndTimeout and stop.flush also where a client's request, a device or the remote
// tier hangs: then not all is closed, and the process must end.
func (d *Daemon) shutdown(clients, workers *errgroup.Group, below context.Context, stopBelow func()) error {
	flushFor := d.reloads.running().Stop.Flush
	last := time.Now().Add(EndTimeout + flushFor)
	err := within(clientsTimeout, "clients' requests", clients.Wait)
	if below.Err() == nil {
		d.flush(below, flushFor)
	}
	if d.kept.Load() {
		d.stack.Stay()
	}
	stopBelow()
	if errors.Is(err, errTimeout) {
		return err // what hangs may be in the memory that close takes away
	}
	werr := within(time.Until(last), "closing the tiers", func() error {
		defer d.Close()
		return workers.Wait()
	})
	if err == nil && !errors.Is(werr, context.Canceled) {
		err = werr
	}
	return err
}

// within is do's error, or errTimeout where do has not returned in time.
func within(limit time.Duration, what string, do func() error) error {
	done := make(chan error, 1)
	go func() { done <- do() }()
	select {
	case err := <-done:
		return err
	case <-time.After(limit):
		return fmt.Errorf("stop: %s: not over within %v: %w", what, limit.Round(time.Millisecond), errTimeout)
	}
}

// flush writes the chunks that are in DRAM only, and logs the rest.
func (d *Daemon) flush(ctx context.Context, limit time.Duration) {
	begun := time.Now()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	done := make(chan map[tier.Place]stack.Left, 1)
	go func() { done <- d.stack.FlushLast(ctx) }()
	var left map[tier.Place]stack.Left
	select {
	case left = <-done:
	case <-time.After(limit + hangTimeout):
		d.log.Warn().Msg("stopping: the flush hangs; what it has not written is missed and computed again")
		return
	}
	if len(left) == 0 {
		d.log.Info().Stringer("took", time.Since(begun).Round(time.Millisecond)).Msg("flushed")
		return
	}
	for place, l := range left {
		says := "stopping: not everything was written; what is left is missed and computed again"
		if place == tier.Remote && d.disk != nil {
			says = "stopping: not everything is in the bucket; what is on disk is found again, and flush --remote uploads it"
		}
		d.log.Warn().AnErr("why", l.Err).Stringer("tier", place).Uint64("chunks", l.Chunks).Uint64("bytes", l.Bytes).
			Msg(says)
	}
}
