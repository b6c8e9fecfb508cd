package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kvstored/kvstored/client"
)

// get times one chunk of size bytes: prefetch, copy out, release, where the
// release goes out with the next prefetch; every chunk is in DRAM and in no
// cache.
func (d *daemon) get(ctx context.Context, b *buffers, ps []client.Prompt, size int) (time.Duration, error) {
	start := time.Now()
	var last *client.Release
	for i, p := range ps {
		j, err := d.c.Prefetch(ctx, p, client.PrefetchOptions{})
		if err != nil {
			return 0, err
		}
		if last != nil {
			if err := last.Wait(ctx); err != nil {
				return 0, err
			}
		}
		if n, err := j.Copy(ctx, part(b.dst, i, size), 0); err != nil || n != size {
			return 0, fmt.Errorf("get: %d bytes: %w", n, err)
		}
		last = j.ReleaseSoon()
	}
	if err := last.Wait(ctx); err != nil {
		return 0, err
	}
	return time.Since(start) / time.Duration(len(ps)), nil
}

// put times one chunk of size bytes: reserve, fill, commit.
func (d *daemon) put(ctx context.Context, b *buffers, ps []client.Prompt, size int) (time.Duration, error) {
	start := time.Now()
	for i, p := range ps {
		f, err := d.reserve(ctx, p, size)
		if err != nil {
			return 0, err
		}
		copy(f.Bytes(0), part(b.src, i, size))
		if err := commit(ctx, f); err != nil {
			return 0, err
		}
	}
	return time.Since(start) / time.Duration(len(ps)), nil
}

// putTwo is put with two commits under way: while the daemon hashes one, the
// client fills the next.
func (d *daemon) putTwo(ctx context.Context, b *buffers, ps []client.Prompt, size int) (time.Duration, error) {
	const ahead = 2
	done := make(chan error, ahead)
	under := 0
	start := time.Now()
	for i, p := range ps {
		f, err := d.reserve(ctx, p, size)
		if err != nil {
			return 0, err
		}
		copy(f.Bytes(0), part(b.src, i, size))
		if under == ahead {
			if err := <-done; err != nil {
				return 0, err
			}
			under--
		}
		under++
		go func() { done <- commit(ctx, f) }()
	}
	for range under {
		if err := <-done; err != nil {
			return 0, err
		}
	}
	return time.Since(start) / time.Duration(len(ps)), nil
}

func (d *daemon) reserve(ctx context.Context, p client.Prompt, size int) (*client.Fill, error) {
	f, err := d.c.Reserve(ctx, p, client.ReserveOptions{Size: size})
	if err != nil {
		return nil, err
	}
	if f.Len() != 1 || f.Status(0) != client.Granted {
		return nil, fmt.Errorf("reserve: %d slots, %v", f.Len(), f.Reason())
	}
	return f, nil
}

func commit(ctx context.Context, f *client.Fill) error {
	rs, err := f.Commit(ctx)
	if err == nil && rs[0].Result != client.ResultStored {
		err = errors.New("commit: " + rs[0].Result.String())
	}
	return err
}

// forget deletes what a round stored.
func (d *daemon) forget(ctx context.Context, ps []client.Prompt) error {
	for _, p := range ps {
		if _, err := d.c.DeletePrompt(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

// fillChain stores a chain of chunks of size bytes.
func (d *daemon) fillChain(ctx context.Context, p client.Prompt, size int) error {
	for first := 0; ; {
		f, err := d.c.Reserve(ctx, p, client.ReserveOptions{First: first, Size: size})
		if err != nil {
			return err
		}
		if f.Len() == 0 {
			return fmt.Errorf("reserve: no room: %v", f.Reason())
		}
		if _, err := f.Commit(ctx); err != nil {
			return err
		}
		first += f.Len()
		if f.Reason() == client.Complete {
			return nil
		}
	}
}

// lookup times a lookup of a chain.
func (d *daemon) lookup(ctx context.Context, p client.Prompt, want int) (time.Duration, error) {
	const n = 300
	start := time.Now()
	for range n {
		m, err := d.c.Lookup(ctx, p, 0)
		if err != nil {
			return 0, err
		}
		if int(m.Total.Chunks) != want {
			return 0, fmt.Errorf("lookup: %d chunks of %d", m.Total.Chunks, want)
		}
	}
	return time.Since(start) / n, nil
}

// lease times leasing and releasing a whole chain.
func (d *daemon) lease(ctx context.Context, p client.Prompt, want int) (time.Duration, error) {
	const n = 500
	start := time.Now()
	for range n {
		j, err := d.c.Prefetch(ctx, p, client.PrefetchOptions{})
		if err != nil {
			return 0, err
		}
		if got, _ := j.Ready(); got != want {
			return 0, fmt.Errorf("lease: %d chunks of %d", got, want)
		}
		if err := j.Release(ctx); err != nil {
			return 0, err
		}
	}
	return time.Since(start) / n, nil
}
