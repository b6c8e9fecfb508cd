package main

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/kvstored/kvstored/bench/measure"
	"github.com/kvstored/kvstored/client"
)

// daemon is one kvstored of this run, without a disk tier, and a client.
type daemon struct {
	*measure.Daemon
	c    *client.Client
	made measure.Prompts
}

// startDaemon starts a daemon and waits until it serves. With an error there is
// none.
func startDaemon(ctx context.Context, binary, dir string, arenaMiB int) (*daemon, error) {
	socket := filepath.Join(dir, "kvstored.sock")
	process, err := measure.Start(binary, socket, fmt.Sprintf(`listen: {socket: %s}
admin: {listen: ""}
cpu: {capacity: %dMiB}
disk: {capacity: 0}
log: {level: warn}
`, socket, arenaMiB))
	if err != nil {
		return nil, err
	}
	d := &daemon{Daemon: process}
	o := measure.Options()
	o.StagingBytes = 256 << 20
	if d.c, err = d.Dial(ctx, o); err != nil {
		d.close()
		return nil, fmt.Errorf("daemon: %w", err)
	}
	return d, nil
}

// measure calls f, and says what processor time client and daemon took for it.
func (d *daemon) measure(f func() (time.Duration, error)) (s sample, err error) {
	before := d.used()
	s.took, err = f()
	s.used = d.used() - before
	return s, err
}

func (d *daemon) used() time.Duration { return measure.Used(0) + d.Busy() }

// close ends the daemon; a nil one is none.
func (d *daemon) close() {
	if d == nil {
		return
	}
	if d.c != nil {
		_ = d.c.Close()
	}
	_ = d.Close() // its own words are on the standard error
}

// prompts makes n new prompts of one chunk.
func (d *daemon) prompts(n int) []client.Prompt { return d.chains(n, 1) }

// chains makes n prompts of so many chunks.
func (d *daemon) chains(n, chunks int) []client.Prompt {
	out := make([]client.Prompt, n)
	for i := range out {
		out[i] = d.made.New(chunks)
	}
	return out
}
