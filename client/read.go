package client

import (
	"context"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/kvstored/kvstored/internal/wire"
)

// ReadOptions say how a Read goes about chunks that are not in DRAM, as PrefetchOptions
// do. The zero value searches all tiers and leaves the rest to the daemon's configuration.
type ReadOptions struct {
	Search   Tiers
	Policy   WaitPolicy
	Deadline time.Duration
}

// Read copies the leading run of a prompt's chunks, and returns how many. It is a
// Prefetch, a Wait, a Copy of each chunk and a Release in one call; chunks that are in
// DRAM it reads without asking the daemon, where the connection maps its directory.
//
// into returns the memory for chunk i, which has size bytes; nil ends the read before that
// chunk. It may be called again for the same chunk, perhaps with another size, where the
// chunk changed while it was copied; what lies behind the returned number of chunks is
// anything. Every chunk was compared with its checksum.
//
// An error says why the run is not longer, and its chunks are good beside it, as they are
// beside the end of ctx. ErrCorrupt says that bytes in DRAM are wrong. A last chunk of
// fewer tokens is read where the prompt has SaveUnfull.
func Read(ctx context.Context, c *Client, p Prompt, o ReadOptions, into func(i, size int) []byte) (chunks int, err error) {
	if into == nil {
		return 0, refuse("read", ErrBadRequest, "no function says where the chunks go")
	}
	r := reading{c: c, into: into, most: readable(c, &p)}
	n, whole, err := r.unasked(ctx, &p, o.Search)
	if whole || err != nil {
		return n, err
	}
	j, err := c.Prefetch(ctx, p, PrefetchOptions{Search: o.Search, Policy: o.Policy, Deadline: o.Deadline})
	if err != nil {
		return n, err
	}
	all, err := r.leased(ctx, j, n)
	if lost := j.Release(ctx); lost != nil {
		return n, lost
	}
	return all, err
}

// reading is one call of Read.
type reading struct {
	c    *Client
	into func(i, size int) []byte
	most int  // chunks that may be read
	over bool // into has ended the read
}

// readable is how many chunks of p may be read: the daemon may be set to take a last chunk
// of fewer tokens for one of every prompt, and the directory is not.
func readable(c *Client, p *Prompt) int {
	n, err := c.chunks(p)
	if err != nil {
		return math.MaxInt
	}
	if last := len(p.lengths) - 1; last >= 0 && !p.SaveUnfull {
		if space, err := c.spaceOr(wire.OpRead, p.Space); err == nil && p.lengths[last] != space.info.ChunkTokens {
			n--
		}
	}
	return n
}

// unasked reads chunks as far as the directory has them. It reports whether that is all
// there is to do.
func (r *reading) unasked(ctx context.Context, p *Prompt, search Tiers) (n int, whole bool, err error) {
	c := r.c
	if !c.maps.hasDirectory() || search != 0 && search&CPU == 0 || !c.link.unaskedMay() {
		return 0, false, nil
	}
	space, err := c.spaceOr(wire.OpRead, p.Space)
	if err != nil || p.form == wire.FormRef {
		return 0, false, err
	}
	k := space.keyers.take(p)
	if k == nil {
		return 0, false, nil
	}
	defer space.keyers.give(k)
	for skip := k.chain.Skip; skip+n < k.chain.Len(); n++ {
		if err := ctx.Err(); err != nil {
			return n, false, err
		}
		place, found := c.maps.find(k.chain.Key(skip + n))
		if !found {
			return n, false, nil
		}
		var dst []byte
		if dst, err = r.room(n, int(place.Size)); r.over || err != nil {
			break
		}
		if !c.maps.read(dst, place) {
			return n, false, nil
		}
	}
	if n > 0 {
		ch := k.record(space.info.Handle, space.info.ChunkTokens, k.chain.Skip+n)
		c.link.told(ctx, &ch)
	}
	return n, true, err
}

// leased reads the chunks of a job from number n on, as they become ready, and returns how
// many there are.
func (r *reading) leased(ctx context.Context, j *Job, n int) (int, error) {
	for s := j.State(); ; {
		for ; n < min(int(s.Ready.Chunks), r.most); n++ {
			if err := r.copy(ctx, j, n); r.over || err != nil {
				return n, err
			}
		}
		if s.Done || n >= r.most {
			return n, nil
		}
		var err error
		if s, err = j.Wait(ctx, int64(s.Ready.Tokens)+1); err != nil {
			return n, err
		}
	}
}

// copy reads chunk i of a job.
func (r *reading) copy(ctx context.Context, j *Job, i int) error {
	ref, err := j.ref(i)
	if err != nil {
		return err
	}
	dst, err := r.room(i, int(ref.Length))
	if r.over || err != nil {
		return err
	}
	if !r.c.Mapped() {
		return j.fetch(ctx, dst, i, ref)
	}
	switch sum, mapped := r.c.maps.copy(dst, ref.Offset); {
	case !mapped:
		return ErrClosed
	case sum != ref.Sum:
		return fmt.Errorf("kvstored: chunk %d: %w", i, ErrCorrupt)
	}
	return nil
}

// room is where chunk i of size bytes goes.
func (r *reading) room(i, size int) ([]byte, error) {
	dst := r.into(i, size)
	if dst == nil {
		r.over = true
		return nil, nil
	}
	if len(dst) < size {
		return nil, fmt.Errorf("kvstored: chunk %d has %d bytes, its memory %d: %w", i, size, len(dst), io.ErrShortBuffer)
	}
	return dst[:size], nil
}
