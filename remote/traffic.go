package remote

import (
	"context"

	"golang.org/x/sync/semaphore"
)

const (
	// writeShare: writes take at most one in so many of all requests and of
	// all bytes in flight. They are in no hurry.
	writeShare = 2
	// readSpare: reads leave one in so many requests to writes, and at least
	// one. A read may wait for memory that only a write frees.
	readSpare = 8
	// leastConcurrency is one request of each kind.
	leastConcurrency = 2
)

// traffic bounds what is in flight. Everybody takes from the own lane first,
// then from what all share, and requests before bytes. So who has bytes waits
// for the store alone, and who has a request only for bytes or for memory.
type traffic struct {
	all, reads, writes lane
	mostBytes          int64
}

// lane is a share of the traffic.
type lane struct {
	requests *semaphore.Weighted
	bytes    *semaphore.Weighted // nil: none of its own
}

func newTraffic(requests int, bytes int64) *traffic {
	n := int64(requests)
	return &traffic{
		all:       lane{semaphore.NewWeighted(n), semaphore.NewWeighted(bytes)},
		reads:     lane{requests: semaphore.NewWeighted(n - max(1, n/readSpare))},
		writes:    lane{semaphore.NewWeighted(n / writeShare), semaphore.NewWeighted(max(1, bytes/writeShare))},
		mostBytes: bytes,
	}
}

// toll is what a request takes of one semaphore while it is in flight.
type toll struct {
	of *semaphore.Weighted
	n  int64
}

// tolls of a request that sends n bytes of payload, in the order they are
// taken. A payload larger than all that may fly flies alone.
func (t *traffic) tolls(l *lane, n int64) [4]toll {
	return [4]toll{
		{l.requests, 1},
		{l.bytes, min(n, max(1, t.mostBytes/writeShare))},
		{t.all.requests, 1},
		{t.all.bytes, min(n, t.mostBytes)},
	}
}

// enter waits until a request with n bytes of payload to send may go.
func (t *traffic) enter(ctx context.Context, l *lane, n int64) error {
	tolls := t.tolls(l, n)
	for i, toll := range tolls {
		if toll.n == 0 {
			continue
		}
		if err := toll.of.Acquire(ctx, toll.n); err != nil {
			release(tolls[:i])
			return err
		}
	}
	return nil
}

// leave gives back what enter took.
func (t *traffic) leave(l *lane, n int64) {
	tolls := t.tolls(l, n)
	release(tolls[:])
}

func release(tolls []toll) {
	for _, toll := range tolls {
		if toll.n > 0 {
			toll.of.Release(toll.n)
		}
	}
}

// receive waits until n bytes of payload may come in, for a request that has
// entered; received ends that.
func (t *traffic) receive(ctx context.Context, n int) error {
	return t.all.bytes.Acquire(ctx, min(int64(n), t.mostBytes))
}

func (t *traffic) received(n int) { t.all.bytes.Release(min(int64(n), t.mostBytes)) }
