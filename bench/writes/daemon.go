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
	"syscall"
	"time"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/key"
)

const (
	chunks    = 8 // of a prompt
	chunkSize = 256 << 10
	diskMiB   = 1024
	patience  = 30 * time.Second
)

var space = key.Space{Model: "bench", World: 1, DType: "none", ChunkTokens: 256, Method: "given:bench"}

// kind is what one of the daemons is.
type kind struct{ name, program, mode, policy string }

// daemon is one kvstored with its clients.
type daemon struct {
	name    string
	dir     string
	cmd     *exec.Cmd
	clients []*client.Client
	prompts atomic.Uint64
	took    []time.Duration
}

func startDaemon(ctx context.Context, k kind, dramMiB, clients int) (*daemon, error) {
	dir, err := os.MkdirTemp("", "kvw-") // short: a socket's path is
	if err != nil {
		return nil, err
	}
	text := fmt.Sprintf(`listen: {socket: %[1]s/s}
admin: {listen: ""}
cpu: {capacity: %[2]dMiB}
disk: {paths: [%[1]s/disk], capacity: %[3]dMiB, policy: %[4]s, segment_size: 64MiB, min_free: 0}
write: {mode: %[5]s}
log: {level: warn}
`, dir, dramMiB, diskMiB, k.policy, k.mode)
	if err := os.WriteFile(dir+"/c.yaml", []byte(text), 0o600); err != nil {
		return nil, err
	}
	d := &daemon{name: k.name, dir: dir, cmd: exec.Command(k.program, "serve", "--config", dir+"/c.yaml")}
	d.cmd.Stderr = os.Stderr
	if err := d.cmd.Start(); err != nil {
		return nil, err
	}
	for range clients {
		c, err := dial(ctx, dir+"/s")
		if err != nil {
			return nil, errors.Join(err, d.close())
		}
		d.clients = append(d.clients, c)
	}
	return d, nil
}

// dial connects once the daemon serves.
func dial(ctx context.Context, socket string) (*client.Client, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		c, err := client.Dial(ctx, socket, client.Options{Name: "bench", Space: &space})
		if err == nil || ctx.Err() != nil {
			return c, err
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func (d *daemon) close() error {
	for _, c := range d.clients {
		_ = c.Close()
	}
	_ = d.cmd.Process.Signal(syscall.SIGTERM)
	return errors.Join(d.cmd.Wait(), os.RemoveAll(d.dir))
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
	hashes := make([]byte, 16*chunks)
	lengths := make([]uint32, chunks)
	for i := range chunks {
		binary.LittleEndian.PutUint64(hashes[16*i:], n<<8|uint64(i))
		hashes[16*i+15], lengths[i] = 1, uint32(space.ChunkTokens)
	}
	start := time.Now()
	stored, err := c.Store(ctx, client.Hashes(16, hashes, lengths), client.ReserveOptions{Count: chunks, Size: chunkSize, Wait: patience}, nil,
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
