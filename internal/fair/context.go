package fair

import "context"

type queuedKey struct{}

// WithQueued returns a context for a load. Queued is called, perhaps more than once, when
// the load is in line, or waits for another's: what comes behind it may go then.
func WithQueued(ctx context.Context, queued func()) context.Context {
	return context.WithValue(ctx, queuedKey{}, queued)
}

// Queued says that the load of a context waits for its turn, or for another load.
func Queued(ctx context.Context) {
	if queued, ok := ctx.Value(queuedKey{}).(func()); ok {
		queued()
	}
}
