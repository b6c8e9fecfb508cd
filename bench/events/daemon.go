package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/internal/measure"
	"github.com/kvstored/kvstored/internal/zmtp"
)

// The daemons.
const (
	off     = "off"
	again   = "again"
	counted = "counted"
	stream  = "socket"
	zeromq  = "ZeroMQ"
)

const (
	chunks      = 24 // of a prompt
	chunkBytes  = 16 << 10
	capacityMiB = 64
	prompts     = 64 // that are asked for, again and again

	settle = 15 * time.Millisecond // after it the last events of a turn are sent
)

// daemon is one kvstored, its clients and its subscriber.
type daemon struct {
	*measure.Daemon
	reader  *client.Client
	writer  *client.Client
	asked   []client.Prompt
	payload [][]byte
	made    measure.Prompts
	heard   atomic.Int64 // events
	end     []func()
}

// startDaemon starts a daemon, fills it and subscribes. With an error there is none.
func startDaemon(ctx context.Context, o *options, dir, kind string) (*daemon, error) {
	socket := filepath.Join(dir, kind)
	events := "{enabled: true}"
	switch kind {
	case off, again:
		events = "{enabled: false}"
	case zeromq:
		events = fmt.Sprintf("{enabled: true, publish: %s.pub}", socket)
	}
	text := fmt.Sprintf("listen: {socket: %s}\nadmin: {listen: \"\"}\ncpu: {capacity: %dMiB}\ndisk: {capacity: 0}\narena: {spin: 0s}\nevents: %s\nlog: {level: warn}\n", socket, capacityMiB, events)
	d := &daemon{}
	err := o.on(func() (err error) {
		d.Daemon, err = measure.Start(o.binary, socket, text)
		return err
	})
	if err != nil {
		return nil, err
	}
	if err := errors.Join(d.fill(ctx), d.subscribe(ctx, kind, socket)); err != nil {
		d.close()
		return nil, err
	}
	return d, nil
}

// fill connects, and fills DRAM.
func (d *daemon) fill(ctx context.Context) (err error) {
	if d.reader, err = d.Dial(ctx, measure.Options()); err != nil {
		return err
	}
	d.end = append(d.end, func() { _ = d.reader.Close() })
	if d.writer, err = d.Dial(ctx, measure.Options()); err != nil {
		return err
	}
	d.end = append(d.end, func() { _ = d.writer.Close() })
	for range chunks {
		d.payload = append(d.payload, make([]byte, chunkBytes))
	}
	for i := 0; i < 2*capacityMiB<<20/chunkBytes; i += chunks { // from here on what comes makes something go
		if err := d.store(ctx, chunks); err != nil {
			return err
		}
	}
	for range prompts {
		d.asked = append(d.asked, d.made.New(chunks))
	}
	return nil
}

// subscribe hears the events of a daemon that has some.
func (d *daemon) subscribe(ctx context.Context, kind, socket string) error {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	d.end = append(d.end, func() { cancel(); running.Wait() })
	switch kind {
	case stream:
		c, err := client.Dial(ctx, socket, client.Options{Name: "subscriber", Inline: true})
		if err != nil {
			return err
		}
		running.Go(func() {
			_ = c.Events(ctx, client.EventsOptions{From: client.EventsNow}, func(b *client.EventBatch) error { // ends with ctx
				d.heard.Add(int64(len(b.Events)))
				return nil
			})
			_ = c.Close()
		})
	case zeromq:
		c, err := zmtp.Dial(ctx, "SUB", "ipc://"+socket+".pub", 64<<20)
		if err == nil {
			err = c.Subscribe("")
		}
		if err != nil {
			return err
		}
		context.AfterFunc(ctx, func() { _ = c.Close() })
		running.Go(func() {
			for {
				if _, err := c.Receive(time.Time{}); err != nil {
					return
				}
				d.heard.Add(1)
			}
		})
	}
	return nil
}

func (d *daemon) store(ctx context.Context, n int) error {
	_, err := d.writer.Put(ctx, d.made.New(n), 0, d.payload[:n])
	return err
}

// turn is one round's work: as many lookups and stores for each daemon.
func (d *daemon) turn(ctx context.Context, o *options) (time.Duration, error) {
	for _, p := range d.asked { // they are there again
		if _, err := d.writer.Put(ctx, p, 0, d.payload); err != nil {
			return 0, err
		}
	}
	busy := d.Busy()
	for n := range o.lookups {
		if _, err := d.reader.Lookup(ctx, d.asked[n%len(d.asked)], 0); err != nil {
			return 0, err
		}
		if n%o.every == 0 {
			if err := d.store(ctx, chunks); err != nil {
				return 0, err
			}
		}
	}
	time.Sleep(settle)
	return d.Busy() - busy, nil
}

// close ends the daemon and its clients.
func (d *daemon) close() {
	for i := len(d.end) - 1; i >= 0; i-- {
		d.end[i]()
	}
	_ = d.Close() // it was asked to end
}
