package main

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/key"
)

// direct is a connection with the Go client. A value is a prompt of one chunk, a
// batch one of many.
type direct struct {
	c       *client.Client
	w       *client.Writer
	under   []*client.Storing
	release *client.Release
}

func dialOurs(socket string) (conn, error) {
	space := key.Space{Model: "bench", World: 1, DType: "none", ChunkTokens: 256, Method: "given:bench"}
	c, err := client.Dial(context.Background(), socket, client.Options{Name: "bench", Space: &space, StagingBytes: 256 << 20})
	if err != nil {
		return nil, err
	}
	return &direct{c: c, w: client.NewWriter(c)}, nil
}

// chain is a prompt of n chunks, the first of which has that name.
func chain(first uint64, n int) client.Prompt {
	hashes, lengths := make([]byte, 0, 16*n), make([]uint32, n)
	for i := range n {
		hashes = binary.LittleEndian.AppendUint64(hashes, first+uint64(i))
		hashes = append(hashes, 1, 0, 0, 0, 0, 0, 0, 0)
		lengths[i] = 256
	}
	return client.Hashes(16, hashes, lengths)
}

func (d *direct) ping() error { return d.c.Ping(context.Background()) }

func (d *direct) put(name uint64, value []byte) error { return d.putMany(name, [][]byte{value}) }

func (d *direct) putMany(first uint64, values [][]byte) error {
	o := client.ReserveOptions{Count: len(values), Size: len(values[0])}
	s, err := d.w.Put(context.Background(), chain(first, len(values)), o, func(i int, dst []byte) error {
		client.CopyTo(dst, values[i])
		return nil
	})
	d.under = append(d.under, s)
	return err
}

func (d *direct) get(name uint64, into []byte) error { return d.getMany(name, [][]byte{into}) }

func (d *direct) getMany(first uint64, into [][]byte) error {
	ctx := context.Background()
	job, err := d.c.Prefetch(ctx, chain(first, len(into)), client.PrefetchOptions{})
	if err != nil {
		return err
	}
	if err := d.released(); err != nil {
		return err
	}
	for i, dst := range into {
		if _, err := job.Copy(ctx, dst, i); err != nil {
			return err
		}
	}
	d.release = job.ReleaseSoon()
	return nil
}

// released waits for the lease that was given back last.
func (d *direct) released() error {
	if d.release == nil {
		return nil
	}
	defer func() { d.release = nil }()
	return d.release.Wait(context.Background())
}

func (d *direct) finish() error {
	ctx := context.Background()
	if err := d.w.Flush(ctx); err != nil {
		return err
	}
	for _, s := range d.under {
		results, err := s.Wait(ctx)
		if err != nil {
			return err
		}
		for _, r := range results {
			if r.Code != client.ResultStored {
				return fmt.Errorf("put: %s", r.Code.String())
			}
		}
	}
	d.under = d.under[:0]
	return d.released()
}

func (d *direct) forget(first, n uint64) error {
	_, err := d.c.DeletePrompt(context.Background(), chain(first, int(n)))
	return err
}
