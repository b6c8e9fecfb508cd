package remote

import (
	"context"

	"golang.org/x/sync/semaphore"
)

// writeShare: writes have half of what reads have, on top of it: no client waits for
// them.
const writeShare = 2

// direction is where payloads go.
type direction uint8

const (
	reads direction = iota
	writes
	directions
)

// traffic bounds requests in flight. Reads and writes share nothing: a read may
// wait for memory that only a write frees.
type traffic [directions]*lane

// lane bounds one direction. Requests are taken before bytes, so that a holder of
// bytes waits for the store alone.
type lane struct {
	requests, bytes *semaphore.Weighted
	most            int64 // bytes
}

func newTraffic(requests int, bytes int64) traffic {
	return traffic{
		reads:  newLane(int64(requests), bytes),
		writes: newLane(max(1, int64(requests)/writeShare), max(1, bytes/writeShare)),
	}
}

func newLane(requests, bytes int64) *lane {
	return &lane{semaphore.NewWeighted(requests), semaphore.NewWeighted(bytes), bytes}
}

// enter waits until a request with n bytes to send may go; leave ends it.
func (l *lane) enter(ctx context.Context, n int) error {
	if err := l.requests.Acquire(ctx, 1); err != nil {
		return err
	}
	if err := l.carry(ctx, n); err != nil {
		l.requests.Release(1)
		return err
	}
	return nil
}

func (l *lane) leave(n int) {
	l.carried(n)
	l.requests.Release(1)
}

// carry waits until n bytes may move, for a request that has entered; carried
// ends that. A payload larger than all that may fly flies alone.
func (l *lane) carry(ctx context.Context, n int) error {
	if n == 0 {
		return nil // and not behind those who have something to carry
	}
	return l.bytes.Acquire(ctx, min(int64(n), l.most))
}

func (l *lane) carried(n int) { l.bytes.Release(min(int64(n), l.most)) }
