package resp

import (
	"errors"

	"github.com/kvstored/kvstored/internal/blob"
)

// fill is a value that came with a command.
type fill struct {
	*blob.Fill // nil if there was no room, or once it was stored
	err        error
}

// fill reads a value of n bytes. If there is no room for it that is its error,
// and the value is passed over.
func (c *session) fill(name []byte, n int) error {
	f, err := c.server.o.Store.Begin(c.ctx, c.owner, name, n)
	if err != nil && c.ctx.Err() == nil && errors.Is(err, blob.ErrNoRoom) && c.out.drain() {
		f, err = c.server.o.Store.Begin(c.ctx, c.owner, name, n)
	}
	c.fills = append(c.fills, fill{f, err})
	if err != nil {
		return c.in.discard(n)
	}
	if err := c.in.full(f.Value(), f.Arrived); err != nil {
		return err
	}
	return c.in.end()
}

// abort gives up the fills that were not stored.
func abort(fills []fill) {
	for _, f := range fills {
		if f.Fill != nil {
			f.Abort()
		}
	}
}
