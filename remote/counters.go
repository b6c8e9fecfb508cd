package remote

import (
	"context"
	"sync/atomic"

	"golang.org/x/sync/semaphore"

	"github.com/kvstored/kvstored/tier"
)

// counters are the requests, their bytes and their outcomes.
type counters struct {
	found, foundBytes   atomic.Uint64
	stored, storedBytes atomic.Uint64
	corrupt             atomic.Uint64

	gets, puts, heads, lists, deletes atomic.Uint64 // requests
	received, sent, wasted            atomic.Uint64 // body bytes; wasted: moved for nothing
	present                           atomic.Uint64 // puts of what was there
	otherBytes                        atomic.Uint64 // of those, with another checksum
	occupied                          atomic.Uint64 // puts whose name something else had
	stale                             atomic.Uint64 // gets of what was thought to be there
	retries                           atomic.Uint64
	slowDowns                         atomic.Uint64
	connectFailed                     atomic.Uint64
}

// Stats implements tier.Tier. Entries and their bytes are 0: other machines
// store and delete too, and only a listing could tell.
func (t *Tier) Stats() tier.Stats {
	c := &t.count
	return tier.Stats{
		Gets: c.found.Load(), GetBytes: c.foundBytes.Load(),
		Puts: c.stored.Load(), PutBytes: c.storedBytes.Load(),
		Corrupt: c.corrupt.Load(), Off: t.Off(),
		Counters: map[string]uint64{
			"get_requests": c.gets.Load(), "put_requests": c.puts.Load(), "head_requests": c.heads.Load(),
			"list_requests": c.lists.Load(), "delete_requests": c.deletes.Load(),
			"received_bytes": c.received.Load(), "sent_bytes": c.sent.Load(), "wasted_bytes": c.wasted.Load(),
			"puts_present": c.present.Load(), "puts_other_bytes": c.otherBytes.Load(), "puts_occupied": c.occupied.Load(),
			"gets_stale": c.stale.Load(),
			"retries":    c.retries.Load(),
			"slow_downs": c.slowDowns.Load(), "connect_failures": c.connectFailed.Load(),
		},
	}
}

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
