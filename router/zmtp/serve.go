package zmtp

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// serve greets the connections of l and runs each for them, most at a time, until ctx
// ends; then it closes them and waits. One beyond that takes the place of the one whose
// handshake has begun the longest ago; where all are greeted it is closed at once. ended
// is told why a connection has ended.
func serve(ctx context.Context, l net.Listener, most int, refused *atomic.Uint64, greet func(net.Conn) (*conn, error), each func(context.Context, *conn) error, ended func(error)) error {
	defer context.AfterFunc(ctx, func() { _ = l.Close() })()
	defer l.Close()
	var running sync.WaitGroup
	defer running.Wait()
	places := places{most: most, refused: refused}
	for {
		nc, err := l.Accept()
		switch {
		case ctx.Err() != nil:
			if err == nil {
				_ = nc.Close()
			}
			return nil
		case errors.Is(err, net.ErrClosed):
			return err
		case err != nil: // no descriptors, say
			select {
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
			continue
		case !places.take(nc):
			_ = nc.Close()
			continue
		}
		running.Go(func() {
			defer places.leave(nc)
			defer nc.Close()
			defer context.AfterFunc(ctx, func() { _ = nc.Close() })()
			c, err := greet(nc)
			if err == nil {
				places.greeted(nc)
				err = each(ctx, c)
			}
			if err != nil && ctx.Err() == nil {
				ended(err)
			}
		})
	}
}

// places are the connections that are served at a time. A client that does not go on with
// its handshake keeps none from others.
type places struct {
	most    int
	refused *atomic.Uint64 // counts connections that got no place or lost theirs
	mu      struct {
		sync.Mutex
		taken     []net.Conn // handshakes under way first, in the order in which they began
		strangers int        // how many these are
	}
}

// take is false where there is no place.
func (p *places) take(nc net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.mu.taken) >= p.most {
		p.refused.Add(1)
		if p.mu.strangers == 0 {
			return false
		}
		_ = p.mu.taken[0].Close() // ends its handshake
		p.remove(0)
	}
	p.mu.taken = slices.Insert(p.mu.taken, p.mu.strangers, nc)
	p.mu.strangers++
	return true
}

// greeted makes a connection one that keeps its place, if it still has it.
func (p *places) greeted(nc net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if i := slices.Index(p.mu.taken, nc); i >= 0 {
		p.remove(i)
		p.mu.taken = append(p.mu.taken, nc)
	}
}

// leave gives the place back, unless another has it.
func (p *places) leave(nc net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if i := slices.Index(p.mu.taken, nc); i >= 0 {
		p.remove(i)
	}
}

func (p *places) remove(i int) {
	p.mu.taken = slices.Delete(p.mu.taken, i, i+1)
	if i < p.mu.strangers {
		p.mu.strangers--
	}
}
