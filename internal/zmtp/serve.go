package zmtp

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// serve runs each for the connections of l, most at a time, until ctx ends; then it
// closes them and waits. One beyond that is closed at once.
func serve(ctx context.Context, l net.Listener, most int, refused *atomic.Uint64, each func(context.Context, net.Conn)) error {
	defer context.AfterFunc(ctx, func() { _ = l.Close() })()
	defer l.Close()
	var running sync.WaitGroup
	defer running.Wait()
	var now atomic.Int64
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
		case now.Load() >= int64(most):
			refused.Add(1)
			_ = nc.Close()
			continue
		}
		now.Add(1)
		running.Go(func() {
			defer now.Add(-1)
			defer nc.Close()
			defer context.AfterFunc(ctx, func() { _ = nc.Close() })()
			each(ctx, nc)
		})
	}
}
