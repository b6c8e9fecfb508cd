package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/internal/measure"
)

const (
	chunks    = 8 // of a prompt
	chunkSize = 256 << 10
	diskMiB   = 1024
	patience  = 30 * time.Second
)

// kind is what one of the daemons is.
type kind struct{ name, program, mode, policy string }

// daemon is one kvstored with its clients.
type daemon struct {
	*measure.Daemon
	name    string
	dir     string
	clients []*client.Client
	prompts atomic.Uint64
	took    []time.Duration
}

func startDaemon(ctx context.Context, k kind, dramMiB, clients int) (*daemon, error) {
	dir, err := os.MkdirTemp("", "kvw-") // short: a socket's path is
	if err != nil {
		return nil, err
	}
	process, err := measure.Start(k.program, dir+"/s", fmt.Sprintf(`listen: {socket: %[1]s/s}
admin: {listen: ""}
cpu: {capacity: %[2]dMiB}
disk: {paths: [%[1]s/disk], capacity: %[3]dMiB, policy: %[4]s, segment_size: 64MiB, min_free: 0}
write: {mode: %[5]s}
log: {level: warn}
`, dir, dramMiB, diskMiB, k.policy, k.mode))
	if err != nil {
		return nil, err
	}
	d := &daemon{Daemon: process, name: k.name, dir: dir}
	for range clients {
		c, err := d.Dial(ctx, measure.Options())
		if err != nil {
			return nil, errors.Join(err, d.close())
		}
		d.clients = append(d.clients, c)
	}
	return d, nil
}

func (d *daemon) close() error {
	for _, c := range d.clients {
		_ = c.Close()
	}
	return errors.Join(d.Close(), os.RemoveAll(d.dir))
}

// fill stores so much that the disk has evicted.
func (d *daemon) fill(ctx context.Context) error {
	for range 2 * diskMiB << 20 / (chunks * chunkSize) {
		if _, err := d.store(ctx, d.clients[0]); err != nil {
			return err
		}
	}
	return nil
}

// round has all clients store for so long, each with a pause behind each prompt.
func (d *daemon) round(ctx context.Context, span, pause time.Duration) error {
	var wg sync.WaitGroup
	took, failed := make([][]time.Duration, len(d.clients)), make([]error, len(d.clients))
	until := time.Now().Add(span)
	for i, c := range d.clients {
		wg.Go(func() {
			for failed[i] == nil && time.Now().Before(until) {
				var one time.Duration
				one, failed[i] = d.store(ctx, c)
				took[i] = append(took[i], one)
				time.Sleep(pause)
			}
		})
	}
	wg.Wait()
	d.took = append(d.took, slices.Concat(took...)...)
	return errors.Join(failed...)
}

// store stores a new prompt, and returns how long that took.
func (d *daemon) store(ctx context.Context, c *client.Client) (time.Duration, error) {
	n := d.prompts.Add(1)
	p := measure.Prompt(n, chunks)
	start := time.Now()
	stored, err := c.Store(ctx, p, client.ReserveOptions{Count: chunks, Size: chunkSize, Wait: patience}, nil,
		func(i int, dst []byte) error {
			for at := 0; at < len(dst); at += 4096 {
				binary.LittleEndian.PutUint64(dst[at:], n<<8|uint64(i))
			}
			return nil
		})
	if err == nil && len(stored) < chunks {
		err = fmt.Errorf("%d of %d chunks were stored", len(stored), chunks)
	}
	return time.Since(start), err
}

// written says how many chunks the disk got, and how many were dropped on the way there.
func (d *daemon) written(program string) (string, error) {
	out, err := exec.Command(program, "--socket", d.dir+"/s", "stats", "--json").Output()
	if err != nil {
		return "", err
	}
	type amount struct{ Chunks uint64 }
	var st struct {
		Store struct {
			Written map[string]struct {
				Written amount
				Dropped map[string]amount
			}
		}
	}
	if err := json.Unmarshal(out, &st); err != nil {
		return "", err
	}
	disk := st.Store.Written["disk"]
	text := fmt.Sprintf("%d chunks were written", disk.Written.Chunks)
	for why, n := range disk.Dropped {
		if n.Chunks > 0 {
			text += fmt.Sprintf(", %d dropped: %s", n.Chunks, why)
		}
	}
	return text, nil
}
