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

// put times one chunk of size bytes, as a Writer stores one after another.
func (d *daemon) put(ctx context.Context, b *buffers, ps []client.Prompt, size int) (time.Duration, error) {
	start := time.Now()
	w := client.NewWriter(d.c)
	var all []*client.Storing
	for i, p := range ps {
		s, err := w.Put(ctx, p, client.ReserveOptions{Count: 1, Size: size}, func(_ int, dst []byte) error {
			client.CopyTo(dst, part(b.src, i, size))
			return nil
		})
		if err != nil {
			return 0, err
		}
		all = append(all, s)
	}
	if err := w.Flush(ctx); err != nil {
		return 0, err
	}
	took := time.Since(start) / time.Duration(len(ps))
	for _, s := range all {
		rs, err := s.Wait(ctx)
		if err != nil || rs[0].Code != client.ResultStored {
			return 0, fmt.Errorf("put: %v %w", rs, err)
		}
	}
	return took, nil
}

// putMany times one chunk of size bytes with several commits under way: while
// the daemon takes one over, the client fills the next. Prompts have several
// chunks, whose slots are reserved together, and before the last commit of the
// prompt before: behind it the reservation would wait until that is done.
func (d *daemon) putMany(ctx context.Context, b *buffers, ps []client.Prompt, chunks, size, inFlight int) (time.Duration, error) {
	start := time.Now()
	under := make([]*client.Commit, 0, inFlight)
	f, err := d.reserve(ctx, ps[0], chunks, size)
	if err != nil {
		return 0, err
	}
	for i := range chunks * len(ps) {
		k, last := i%chunks, i == chunks*len(ps)-1
		fillSlot(f, k, part(b.src, i, size))
		full := f
		if k == chunks-1 && !last {
			if f, err = d.reserve(ctx, ps[i/chunks+1], chunks, size); err != nil {
				return 0, err
			}
		}
		under = append(under, full.StartCommit(ctx, k, 1))
		if len(under) < inFlight && !last {
			continue
		}
		if err := stored(ctx, under[0]); err != nil {
			return 0, err
		}
		under = append(under[:0], under[1:]...)
	}
	for _, c := range under {
		if err := stored(ctx, c); err != nil {
			return 0, err
		}
	}
	return time.Since(start) / time.Duration(chunks*len(ps)), nil
}

// putBatch times one chunk of size bytes of prompts that are reserved, filled
// and committed whole.
func (d *daemon) putBatch(ctx context.Context, b *buffers, ps []client.Prompt, chunks, size int) (time.Duration, error) {
	start := time.Now()
	for i, p := range ps {
		f, err := d.reserve(ctx, p, chunks, size)
		if err != nil {
			return 0, err
		}
		for k := range chunks {
			fillSlot(f, k, part(b.src, i*chunks+k, size))
		}
		if err := stored(ctx, f.StartCommit(ctx, 0, chunks)); err != nil {
			return 0, err
		}
	}
	return time.Since(start) / time.Duration(chunks*len(ps)), nil
}

// getBatch times one chunk of size bytes of prompts that are leased whole.
func (d *daemon) getBatch(ctx context.Context, b *buffers, ps []client.Prompt, chunks, size int) (time.Duration, error) {
	start := time.Now()
	for i, p := range ps {
		j, err := d.c.Prefetch(ctx, p, client.PrefetchOptions{})
		if err != nil {
			return 0, err
		}
		for k := range chunks {
			if n, err := j.Copy(ctx, part(b.dst, i*chunks+k, size), k); err != nil || n != size {
				return 0, fmt.Errorf("get: %d bytes: %w", n, err)
			}
		}
		if err := j.Release(ctx); err != nil {
			return 0, err
		}
	}
	return time.Since(start) / time.Duration(chunks*len(ps)), nil
}

// fillSlot writes the payload of a slot.
func fillSlot(f *client.Fill, slot int, payload []byte) { f.Write(slot, payload) }

// stored waits for a commit.
func stored(ctx context.Context, c *client.Commit) error {
	rs, err := c.Wait(ctx)
	for i := 0; err == nil && i < len(rs); i++ {
		if rs[i].Code != client.ResultStored {
			err = errors.New("commit: " + rs[i].Code.String())
		}
	}
	return err
}

func (d *daemon) reserve(ctx context.Context, p client.Prompt, chunks, size int) (*client.Fill, error) {
	f, err := d.c.Reserve(ctx, p, client.ReserveOptions{Size: size})
	if err != nil {
		return nil, err
	}
	if f.Len() != chunks || f.Status(0) != client.Granted {
		return nil, fmt.Errorf("reserve: %d slots, %v", f.Len(), f.Reason().String())
	}
	return f, nil
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
			return fmt.Errorf("reserve: no room: %v", f.Reason().String())
		}
		for i := range f.Len() {
			clear(f.Bytes(i)) // a staging area that was seen with a page missing is copied from more slowly
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
