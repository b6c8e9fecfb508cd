package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/internal/measure"
	"github.com/kvstored/kvstored/key"
)

// daemon is one kvstored of this run, without a disk tier, and a client.
type daemon struct {
	cmd *exec.Cmd
	c   *client.Client
	n   uint64 // prompts made so far
}

// startTimeout is how long a daemon may take for its arena: with huge pages and
// fragmented memory it is 3 CPU seconds per GiB, beside what else runs here.
const startTimeout = 3 * time.Minute

// startDaemon starts a daemon and waits until it serves. With an error there is
// none.
func startDaemon(ctx context.Context, binary, dir, name, puts string, arenaMiB int, spin time.Duration) (*daemon, error) {
	socket := filepath.Join(dir, name+".sock")
	file := filepath.Join(dir, name+".yaml")
	text := fmt.Sprintf(`listen: {socket: %s}
admin: {listen: ""}
arena: {puts: %s, spin: %s}
cpu: {capacity: %dMiB}
disk: {capacity: 0}
log: {level: warn}
`, socket, puts, spin, arenaMiB)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return nil, err
	}
	d := &daemon{cmd: exec.Command(binary, "serve", "--config", file)}
	d.cmd.Stderr = os.Stderr
	if err := d.cmd.Start(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := d.dial(ctx, socket, puts, spin); err != nil {
		d.close()
		return nil, fmt.Errorf("daemon %s does not serve: %w", name, err)
	}
	return d, nil
}

// dial connects the client. A daemon listens, and answers when it has its memory.
func (d *daemon) dial(ctx context.Context, socket, puts string, spin time.Duration) error {
	probe, err := dialWhenUp(socket)
	if err != nil {
		return err
	}
	_ = probe.Close()
	space := key.Space{Model: "bench", World: 1, DType: "none", ChunkTokens: 256, Method: "given:bench"}
	d.c, err = client.Dial(ctx, socket, client.Options{Name: "bench", Space: &space, Spin: spin, Direct: puts == "direct", StagingBytes: 256 << 20})
	return err
}

// measure calls f, and says what processor time client and daemon took for it.
func (d *daemon) measure(f func() (time.Duration, error)) (s sample, err error) {
	before := d.used()
	s.took, err = f()
	s.used = d.used() - before
	return s, err
}

func (d *daemon) used() time.Duration { return measure.Used(0) + measure.Used(d.cmd.Process.Pid) }

// close ends the daemon; a nil one is none.
func (d *daemon) close() {
	if d == nil {
		return
	}
	if d.c != nil {
		_ = d.c.Close()
	}
	_ = d.cmd.Process.Signal(syscall.SIGTERM)
	_ = d.cmd.Wait()
}

// prompts makes n new prompts of one chunk.
func (d *daemon) prompts(n int) []client.Prompt { return d.chains(n, 1) }

// chains makes n prompts of so many chunks.
func (d *daemon) chains(n, chunks int) []client.Prompt {
	out := make([]client.Prompt, n)
	for i := range out {
		out[i] = d.prompt(chunks)
	}
	return out
}

// prompt makes a prompt of new chunks.
func (d *daemon) prompt(chunks int) client.Prompt {
	hashes := make([]byte, 0, 16*chunks)
	lengths := make([]uint32, chunks)
	for i := range chunks {
		d.n++
		hashes = appendHash(hashes, d.n)
		lengths[i] = 256
	}
	return client.Hashes(16, hashes, lengths)
}

func appendHash(dst []byte, n uint64) []byte {
	var h [16]byte
	for i := range 8 {
		h[i] = byte(n >> (8 * i))
	}
	h[15] = 1
	return append(dst, h[:]...)
}
