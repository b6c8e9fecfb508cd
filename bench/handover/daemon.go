package main

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/internal/measure"
)

// perPrompt is how many chunks a prompt has.
const perPrompt = 500

// startDaemon starts a daemon with room for a row, without a disk tier, and fills it.
// With an error there is none.
func startDaemon(ctx context.Context, program, dir string, r row) (*measure.Daemon, error) {
	socket := filepath.Join(dir, "kvstored.sock")
	d, err := measure.Start(program, socket, fmt.Sprintf(`listen: {socket: %s}
admin: {listen: ""}
cpu: {capacity: %d}
limits: {chunks: %d}
disk: {capacity: 0}
upgrade: {hand_over: true}
log: {level: warn}
`, socket, r.capacity(), max(r.chunks*23/20, 4096)))
	if err != nil {
		return nil, err
	}
	if err := fill(ctx, d, r); err != nil {
		_ = d.Close() // err says more
		return nil, err
	}
	return d, nil
}

// fill stores the chunks of a row. Their bytes are those that lie there.
func fill(ctx context.Context, d *measure.Daemon, r row) error {
	c, err := d.Dial(ctx, measure.Options())
	if err != nil {
		return err
	}
	defer c.Close()
	sizes := make([]uint32, perPrompt)
	for i := range sizes {
		sizes[i] = uint32(r.bytes)
	}
	for n := range r.chunks / perPrompt {
		for first := 0; first < perPrompt; {
			f, err := c.Reserve(ctx, prompt(n, perPrompt), client.ReserveOptions{First: first, Sizes: sizes[first:], Wait: 10 * time.Second})
			if err != nil {
				return fmt.Errorf("fill: %w", err)
			}
			if _, err := f.Commit(ctx); err != nil {
				return fmt.Errorf("fill: %w", err)
			}
			first += f.Len()
		}
	}
	return nil
}

// prompt is the n-th prompt that DRAM is filled with.
func prompt(n, chunks int) client.Prompt { return measure.Prompt(uint64(n+1), chunks) }

// complete is an error where a chunk of the row is not there.
func complete(ctx context.Context, d *measure.Daemon, r row) error {
	c, err := d.Dial(ctx, measure.Options())
	if err != nil {
		return err
	}
	defer c.Close()
	there := 0
	for n := range r.chunks / perPrompt {
		m, err := c.Lookup(ctx, prompt(n, perPrompt), 0)
		if err != nil {
			return err
		}
		there += int(m.Total.Chunks)
	}
	if there != r.chunks {
		return fmt.Errorf("%d of %d chunks are there", there, r.chunks)
	}
	return nil
}
