package disk

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kvstored/kvstored/tier"
)

// errHung says that the device ended nothing for the whole I/O timeout.
var errHung = fmt.Errorf("the device %w: %w", tier.ErrHung, os.ErrDeadlineExceeded)

// patience is how many I/O timeouts an operation waits while the device is
// slow but ends requests of others.
const patience = 8

// Run moves the bytes until ctx ends or Close is called: the workers of the
// device, the commits, and the maintenance. Operations begun before Run wait
// for it (ended by their ctx, or the I/O timeout), those after it fail with
// ErrClosed. What was submitted before the end is committed or failed before
// Run returns. A device that hangs is left behind after the I/O timeout, with
// an error. A database that turns out to be damaged ends Run too.
func (t *Tier) Run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	t.life.Lock()
	if t.life.running || t.life.closed {
		t.life.Unlock()
		return fmt.Errorf("disk: run: %w", tier.ErrClosed)
	}
	t.life.running, t.life.stop = true, stop
	t.life.Unlock()
	defer close(t.ended)

	// Commits go on until the device has handed over its last transfers.
	commits, stopCommits := context.WithCancel(context.WithoutCancel(ctx))
	committed := make(chan error, 1)
	go func() { committed <- t.commits.run(commits) }()
	g, ctx := errgroup.WithContext(ctx)
	for _, d := range t.devices() {
		g.Go(func() error { return d.run(ctx) })
	}
	g.Go(func() error { return t.maintain(ctx) })
	g.Go(func() error { return t.keepBurying(ctx) })
	g.Go(func() error { return t.mend(ctx) })
	err := g.Wait()
	stopCommits()
	return errors.Join(err, t.wait(context.Background(), committed, nil))
}

// halt ends Run, and closes nothing.
func (t *Tier) halt() error {
	t.life.Lock()
	defer t.life.Unlock()
	if !t.life.running || t.life.closed {
		return tier.ErrClosed
	}
	t.life.stop()
	return nil
}

// wait returns what done says, or gives up with ctx or a device that hangs.
// The transfer, if any, is then taken out of the queue; what is in the kernel
// ends by itself.
func (t *Tier) wait(ctx context.Context, done <-chan error, x *transfer) error {
	timer := time.NewTimer(t.o.IOTimeout)
	defer timer.Stop()
	seen := t.progress(x)
	var err error
	for left := patience; err == nil; left-- {
		select {
		case err := <-done:
			return err
		case <-ctx.Done():
			err = ctx.Err()
		case <-t.ended:
			select {
			case err := <-done:
				return err
			default:
				err = tier.ErrClosed
			}
		case <-timer.C:
			if at := t.progress(x); at == seen || left == 0 {
				err = errHung
			} else {
				seen = at
				timer.Reset(t.o.IOTimeout)
			}
		}
	}
	if errors.Is(err, errHung) {
		t.count.timeouts.Add(1)
	}
	if x != nil {
		if errors.Is(err, errHung) && !x.over.Load() && x.call == nil {
			x.dev.healthOf(x).hung()
		}
		x.dev.cancel(x, err)
	}
	return err
}

// progress moves as long as the stage that x is in does: its device, then the
// database.
func (t *Tier) progress(x *transfer) uint64 {
	if x != nil && !x.over.Load() {
		return x.dev.progress.Load()
	}
	return t.commits.progress.Load() + t.metaDev.progress.Load()
}

// within gives up on fn after d; fn goes on by itself.
func within(d time.Duration, fn func() error) error {
	done := make(chan error, 1)
	go func() { done <- fn() }()
	select {
	case err := <-done:
		return err
	case <-time.After(d):
		return fmt.Errorf("after %v: %w", d, errHung)
	}
}

// calling is work that may hang with the device.
type calling struct {
	transfer
	done  chan error
	after func()
}

func (c *calling) finish(err error) {
	if c.after != nil {
		c.after()
	}
	c.done <- err
}

// call runs fn as the work of d, so that it cannot hang the caller. after
// runs once fn is over or will not run, however the caller fared.
func (t *Tier) call(ctx context.Context, d *device, fn func() error, after func()) error {
	c := startCall(d, fn, after)
	return t.wait(ctx, c.done, &c.transfer)
}

// startCall is call without the waiting.
func startCall(d *device, fn func() error, after func()) *calling {
	c := &calling{done: make(chan error, 1), after: after}
	c.transfer.call, c.end, c.dev = fn, c, d
	if err := d.submit(&c.transfer); err != nil {
		c.finish(err)
	}
	return c
}
