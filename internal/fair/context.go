package fair

import (
	"context"
	"sync"
	"time"
)

type turnKey struct{}

// With returns a context for work of one turn, which the functions below find.
func With(ctx context.Context, t *Turn) context.Context { return context.WithValue(ctx, turnKey{}, t) }

// turnOf is the turn that a context is for; nil: it is for none.
func turnOf(ctx context.Context) *Turn {
	t, _ := ctx.Value(turnKey{}).(*Turn)
	return t
}

// Yield is Turn.Yield for the turn that a context is for, if it is for one. It
// waits no longer than the context lasts: the work must end then.
func Yield(ctx context.Context) { turnOf(ctx).yieldIn(ctx) }

// Leave is Turn.Leave for the turn that a context is for, if it is for one.
func Leave(ctx context.Context) { turnOf(ctx).Leave() }

// Step does a part of something that waits between its parts, and gives its place back
// then (Leave): it has its turn and is charged like a request. After the end of ctx it is
// done without: nothing follows it.
func Step(ctx context.Context, do func()) {
	t := turnOf(ctx)
	_ = t.Begin(ctx, time.Now()) // of no turn it does nothing, and so does End
	do()
	t.End(time.Now())
}

// Lock locks mu for the turn that a context is for, if it is for one. The turn
// gives its place back where it has to wait for the lock, and does not wait for a
// place while it has it: else turns in line would hold locks that turns with a
// place wait for, and each would take its patience. Unlock follows.
func Lock(ctx context.Context, mu *sync.Mutex) {
	t := turnOf(ctx)
	if !mu.TryLock() {
		t.Leave()
		mu.Lock()
	}
	if t != nil {
		t.locks++
	}
}

// Unlock ends Lock.
func Unlock(ctx context.Context, mu *sync.Mutex) {
	mu.Unlock()
	if t := turnOf(ctx); t != nil {
		t.locks--
	}
}
