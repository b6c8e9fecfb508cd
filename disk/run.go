package disk

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kvstored/kvstored/disk/internal/blockio"
	"github.com/kvstored/kvstored/tier"
)

// patience is how many I/O timeouts an operation waits while the device is
// slow but ends requests of others.
const patience = 8

// run moves the bytes until ctx ends or close is called: the workers of the
// device, the commits, and the maintenance. Operations begun before run wait
// for it (ended by their ctx, or the I/O timeout), those after it fail with
// ErrClosed. Work submitted before the end is committed or failed before
// run returns. A device that hangs is left behind after the I/O timeout, with
// an error. A database that turns out to be damaged ends Run too.
func (t *instance) run(ctx context.Context) error {
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
	go func() { committed <- t.commits.Run(commits) }()
	g, ctx := errgroup.WithContext(ctx)
	for _, d := range t.devices() {
		g.Go(func() error { return d.Run(ctx) })
	}
	g.Go(func() error { return t.maintain(ctx) })
	g.Go(func() error { return t.tombs.run(ctx) })
	g.Go(func() error { return t.db.Run(ctx) })
	err := g.Wait()
	stopCommits()
	return errors.Join(err, t.wait(context.Background(), committed, nil))
}

// wait returns the error from done, or gives up with ctx or a device that hangs.
// The transfer, if any, is then taken out of the queue; its pieces in the kernel
// end by themselves.
func (t *instance) wait(ctx context.Context, done <-chan error, x *blockio.Transfer) error {
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
				err = blockio.ErrHung
			} else {
				seen = at
				timer.Reset(t.o.IOTimeout)
			}
		}
	}
	if errors.Is(err, blockio.ErrHung) {
		t.count.timeouts.Add(1)
	}
	if x != nil {
		if errors.Is(err, blockio.ErrHung) && !x.Over.Load() && x.Call == nil {
			x.Hung()
		}
		x.Dev.Cancel(x, err)
	}
	return err
}

// progress moves as long as the stage that x is in does: its device, then the
// database.
func (t *instance) progress(x *blockio.Transfer) uint64 {
	if x != nil && !x.Over.Load() {
		return x.Dev.Progress.Load()
	}
	return t.commits.Progress() + t.metaDev.Progress.Load()
}

// turn is held by one at a time.
type turn chan struct{}

func newTurn() turn { return make(turn, 1) }

// take waits for the turn, or until ctx or the tier ends.
func (u turn) take(ctx context.Context, ended <-chan struct{}) error {
	select {
	case u <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-ended:
		return tier.ErrClosed
	}
}

func (u turn) leave() { <-u }

// within gives up on fn after d; fn goes on by itself.
func within(d time.Duration, fn func() error) error {
	done := make(chan error, 1)
	go func() { done <- fn() }()
	select {
	case err := <-done:
		return err
	case <-time.After(d):
		return fmt.Errorf("after %v: %w", d, blockio.ErrHung)
	}
}

// work is a transfer, or a call that may hang with the device, whose end is awaited.
type work struct {
	blockio.Transfer
	done  chan error
	after func(err error) // comes before; or nil
}

func newWork() *work {
	w := &work{done: make(chan error, 1)}
	w.End = w
	return w
}

func (w *work) Finish(err error) {
	if w.after != nil {
		w.after(err)
	}
	w.done <- err
}

// submit hands the work to a device; one that takes no more ends it.
func (w *work) submit(d *blockio.Device) *work {
	if err := d.Submit(&w.Transfer); err != nil {
		w.Finish(err)
	}
	return w
}

// call runs fn as the work of d, so that it cannot hang the caller. after
// runs once fn is over or will not run, however the caller fared.
func (t *instance) call(ctx context.Context, d *blockio.Device, fn func() error, after func()) error {
	w := startCall(d, fn, after)
	return t.wait(ctx, w.done, &w.Transfer)
}

// ask is what fn answers, as the work of the device that the database lies on.
func ask[T any](ctx context.Context, t *instance, fn func() (T, error)) (got T, err error) {
	var answer T // the call's own until it has returned without error
	err = t.call(ctx, t.metaDev, func() (err error) { answer, err = fn(); return err }, nil)
	if err == nil {
		got = answer
	}
	return got, err
}

// startCall is call without the waiting.
func startCall(d *blockio.Device, fn func() error, after func()) *work {
	w := newWork()
	w.Call = fn
	if after != nil {
		w.after = func(error) { after() }
	}
	return w.submit(d)
}

// await waits for a call for as long as that takes, or until ctx or the tier ends.
func (t *instance) await(ctx context.Context, w *work) error {
	err := t.until(ctx, w.done)
	if err != nil {
		w.Dev.Cancel(&w.Transfer, err) // if it has not ended
	}
	return err
}

// until is an error from done, however long that takes, or the end of ctx or of the tier.
func (t *instance) until(ctx context.Context, done <-chan error) error {
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	case <-t.ended:
		return tier.ErrClosed
	}
}
