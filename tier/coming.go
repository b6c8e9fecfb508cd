package tier

import (
	"context"
	"fmt"
	"sync"

	"github.com/kvstored/kvstored/key"
)

// coming is what is on its way up to DRAM, one fetch a key, and what is being
// deleted meanwhile: a fetch may have read its chunk before that was deleted,
// and must not bring it back.
//
// Its mutex is held around one Publish in the hot tier: either a chunk is in
// DRAM when its deletion begins, and is deleted there, or it never gets there.
type coming struct {
	mu struct {
		sync.Mutex
		chunks    map[key.Key]*ascent
		deletions map[*deletion]struct{}
	}
}

// ascent is one chunk being fetched.
type ascent struct {
	key     key.Key
	from    Place
	deleted bool
	cancel  context.CancelFunc // its context ends when it is deleted
}

// errDeleted is the answer to a load of what is deleted on its way up.
var errDeleted = fmt.Errorf("it is being deleted: %w", ErrNotFound)

// begin notes that k is about to be fetched from p. The context it returns
// ends if k is deleted there. The ascent ends with end.
func (c *coming) begin(ctx context.Context, k key.Key, p Place) (context.Context, *ascent, error) {
	ctx, cancel := context.WithCancel(ctx)
	a := &ascent{key: k, from: p, cancel: cancel}
	c.mu.Lock()
	defer c.mu.Unlock()
	for d := range c.mu.deletions {
		if a.hit(d) {
			cancel()
			return ctx, nil, errDeleted
		}
	}
	if c.mu.chunks == nil {
		c.mu.chunks = make(map[key.Key]*ascent)
	}
	c.mu.chunks[k] = a
	return ctx, a, nil
}

func (c *coming) end(a *ascent) {
	a.cancel()
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.mu.chunks, a.key)
}

// arrive publishes what was fetched, unless it has been deleted meanwhile.
func (c *coming) arrive(a *ascent, publish func()) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if a.deleted {
		return errDeleted
	}
	publish()
	return nil
}

// readmit publishes what comes back on its way down, unless it is being
// deleted.
func (c *coming) readmit(k key.Key, publish func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	a := ascent{key: k, from: CPU}
	for d := range c.mu.deletions {
		if a.hit(d) {
			return
		}
	}
	publish()
}

// refuse keeps what d deletes from coming up, what is on its way included,
// until the call of the result.
func (c *coming) refuse(d *deletion) (end func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, a := range c.mu.chunks {
		if a.hit(d) {
			a.deleted = true
			a.cancel()
		}
	}
	if c.mu.deletions == nil {
		c.mu.deletions = make(map[*deletion]struct{})
	}
	c.mu.deletions[d] = struct{}{}
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.mu.deletions, d)
	}
}

// hit reports whether d deletes what is being fetched.
func (a *ascent) hit(d *deletion) bool { return d.from.Has(a.from) && d.has(a.key) }
