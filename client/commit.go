package client

import (
	"context"

	"github.com/kvstored/kvstored/internal/wire"
)

// Commit is a commit under way. Its methods are for one goroutine at a time.
type Commit struct {
	fill    *Fill
	slot    int   // the first one
	call    *call // nil if there is nothing to wait for
	results []Stored
	err     error
}

// StartCommit is CommitRange without waiting: while the daemon takes the slots
// over, the caller can fill others. The request is on its way when it returns.
func (f *Fill) StartCommit(ctx context.Context, first, n int) *Commit {
	c := f.commitSoon(ctx, first, n)
	if c.call != nil {
		c.err = f.c.link.send(ctx, 0, nil)
	}
	return c
}

// commitSoon is StartCommit, but the request goes out with the next one on this
// connection, or with Wait.
func (f *Fill) commitSoon(ctx context.Context, first, n int) *Commit {
	c := &Commit{fill: f, slot: first}
	if c.err = f.check("commit", first, n); c.err != nil {
		return c
	}
	if f.id == 0 || n == 0 || f.c.hello.Puts == wire.PutInline {
		c.results, c.err = f.CommitRange(ctx, first, n, nil)
		return c
	}
	req := wire.FillRequest{Fill: f.id, First: uint32(first), Count: uint32(n)}
	c.call = f.c.link.later(wire.OpCommit, &req, takeResults(&c.results, n))
	return c
}

// Wait returns what CommitRange does, again and again. Where ctx ends before, the commit
// goes on, and a later Wait returns what became of it.
func (c *Commit) Wait(ctx context.Context) ([]Stored, error) {
	if c.call != nil {
		done, err := c.fill.c.link.finish(ctx, c.call)
		if !done {
			return nil, err // the results are the reader's yet
		}
		c.call, c.err = nil, err
	}
	return c.results, c.err
}
