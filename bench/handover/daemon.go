package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/key"
)

// startTimeout is how long a daemon may take for its arena.
const startTimeout = 3 * time.Minute

// perPrompt is how many chunks a prompt has.
const perPrompt = 500

var space = key.Space{Model: "bench", World: 1, DType: "none", ChunkTokens: 256, Method: "given:bench"}

// daemon is one kvstored of this run, without a disk tier.
type daemon struct {
	cmd          *exec.Cmd
	ended        chan error
	socket, file string
}

// startDaemon starts a daemon with room for a row, and waits until it serves. With an
// error there is none.
func startDaemon(ctx context.Context, program, dir string, r row) (*daemon, error) {
	d := &daemon{socket: filepath.Join(dir, "kvstored.sock"), file: filepath.Join(dir, "kvstored.yaml")}
	text := fmt.Sprintf(`listen: {socket: %s}
admin: {listen: ""}
cpu: {capacity: %d}
limits: {chunks: %d}
disk: {capacity: 0}
upgrade: {hand_over: true}
log: {level: warn}
`, d.socket, r.capacity(), max(r.chunks*23/20, 4096))
	if err := os.WriteFile(d.file, []byte(text), 0o600); err != nil {
		return nil, err
	}
	if err := d.launch(program); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		c, err := dial(ctx, d.socket)
		if err == nil {
			_ = c.Close() // it asked for nothing
			return d, nil
		}
		select {
		case <-ctx.Done():
			d.close()
			return nil, fmt.Errorf("the daemon does not serve: %w", err)
		case err := <-d.ended:
			return nil, fmt.Errorf("the daemon has ended: %w", err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func dial(ctx context.Context, socket string) (*client.Client, error) {
	return client.Dial(ctx, socket, client.Options{Name: "bench", Space: &space})
}

func (d *daemon) launch(program string, args ...string) error {
	d.cmd = exec.Command(program, append([]string{"serve", "--config", d.file}, args...)...)
	d.cmd.Stderr = os.Stderr
	if err := d.cmd.Start(); err != nil {
		return err
	}
	d.ended = make(chan error, 1)
	go func() { d.ended <- d.cmd.Wait() }()
	return nil
}

// succeed has a new process take over, and returns it when d has ended. With an error d
// still runs, or has failed.
func (d *daemon) succeed(ctx context.Context, program string) (*daemon, error) {
	next := &daemon{socket: d.socket, file: d.file}
	if err := next.launch(program, "--take-over"); err != nil {
		return d, err
	}
	select {
	case err := <-d.ended:
		if err != nil {
			next.close()
			return d, fmt.Errorf("the daemon that hands over: %w", err)
		}
		return next, nil
	case err := <-next.ended:
		return d, fmt.Errorf("the daemon that takes over has ended: %w", errors.Join(err, errors.New("see above")))
	case <-ctx.Done():
		next.close()
		return d, ctx.Err()
	}
}

// close ends the daemon.
func (d *daemon) close() {
	if d.cmd.Process.Signal(syscall.SIGTERM) == nil { // else it has ended
		_ = <-d.ended // it was asked to end
	}
}

// prompt is the n-th of those that DRAM is filled with.
func prompt(n, chunks int) client.Prompt {
	var hashes []byte
	lengths := make([]uint32, chunks)
	for i := range lengths {
		hashes = binary.LittleEndian.AppendUint64(hashes, uint64(n+1))
		hashes = binary.LittleEndian.AppendUint64(hashes, uint64(i+1))
		lengths[i] = uint32(space.ChunkTokens)
	}
	return client.Hashes(16, hashes, lengths)
}

// fill stores the chunks of a row. Their bytes are those that lie there.
func (d *daemon) fill(ctx context.Context, r row) error {
	c, err := dial(ctx, d.socket)
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

// complete is an error where a chunk of the row is not there.
func (d *daemon) complete(ctx context.Context, r row) error {
	c, err := dial(ctx, d.socket)
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
