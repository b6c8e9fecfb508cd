package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/internal/measure"
)

const (
	askers = 4
	// askPause is between two requests of one client.
	askPause = time.Millisecond
	// askTimeout is how long an answer may take, with the connects before it.
	askTimeout = time.Minute
)

// asking are clients that ask all the time.
type asking struct {
	end     context.CancelFunc
	running sync.WaitGroup
	mu      sync.Mutex
	seen    [askers]asked
	failed  error // the first
}

// asked is what one client has seen since all was called.
type asked struct {
	answers  int
	epoch    uint64 // of the daemon that has answered last
	last     time.Time
	longest  time.Duration
	switched bool // another daemon has answered
}

func newAsking(ctx context.Context, socket string) *asking {
	ctx, end := context.WithCancel(ctx)
	a := &asking{end: end}
	for i := range askers {
		a.running.Go(func() { a.run(ctx, socket, i) })
	}
	return a
}

func (a *asking) stop() {
	a.end()
	a.running.Wait()
}

// run asks until ctx ends, and connects again where that takes it.
func (a *asking) run(ctx context.Context, socket string, number int) {
	var c *client.Client
	for ctx.Err() == nil {
		var err error
		if c == nil {
			c, err = client.Dial(ctx, socket, measure.Options())
		}
		if err == nil {
			_, err = c.Lookup(ctx, prompt(0, 1), 0)
		}
		if err == nil {
			a.answered(number, c.Epoch())
			time.Sleep(askPause)
			continue
		}
		if c != nil {
			_ = c.Close()
			c = nil
		}
		if again := errors.Is(err, client.ErrDisconnected) || errors.Is(err, client.ErrStopping); !again && ctx.Err() == nil {
			a.fail(err) // also a connect that is refused
			return
		}
	}
	if c != nil {
		_ = c.Close()
	}
}

func (a *asking) fail(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.failed == nil {
		a.failed = err
	}
}

// answered notes an answer.
func (a *asking) answered(number int, epoch uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	s, now := &a.seen[number], time.Now()
	if s.answers > 0 {
		s.longest = max(s.longest, now.Sub(s.last))
		s.switched = s.switched || epoch != s.epoch
	}
	s.answers, s.epoch, s.last = s.answers+1, epoch, now
}

// all begins anew, and waits until each client was answered.
func (a *asking) all(ctx context.Context) error {
	a.mu.Lock()
	a.seen = [askers]asked{}
	a.mu.Unlock()
	return a.until(ctx, func(s asked) bool { return s.answers > 10 })
}

// gaps waits until each client was answered by another daemon than at first, and returns
// the longest time that each was without an answer.
func (a *asking) gaps(ctx context.Context) ([]time.Duration, error) {
	if err := a.until(ctx, func(s asked) bool { return s.switched }); err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	var gaps []time.Duration
	for _, s := range a.seen {
		gaps = append(gaps, s.longest)
	}
	return gaps, nil
}

// until waits until all that was seen is so.
func (a *asking) until(ctx context.Context, so func(asked) bool) error {
	for deadline := time.Now().Add(askTimeout); ; time.Sleep(askPause) {
		a.mu.Lock()
		err, waits := a.failed, 0
		for _, s := range a.seen {
			if !so(s) {
				waits++
			}
		}
		a.mu.Unlock()
		switch {
		case err != nil:
			return err
		case waits == 0:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case time.Now().After(deadline):
			return fmt.Errorf("%d of %d clients were not answered within %v", waits, askers, askTimeout)
		}
	}
}
