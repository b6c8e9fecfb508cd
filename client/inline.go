package client

import (
	"context"
	"time"

	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/wire"
)

// GetOptions say what to get. The zero value gets what fits one reply, from
// the first chunk.
type GetOptions struct {
	First     int
	MaxChunks int           // 0 means all that follow First
	MaxBytes  int           // of payload; the first chunk comes even if it is larger
	Deadline  time.Duration // for chunks that must be promoted; 0 means the configured one
}

// Chunk is a payload that came over the socket. Its bytes are the caller's.
type Chunk struct {
	Bytes  []byte
	Tokens int
	Sum    uint64 // XXH3-64, verified
}

// Get returns the longest leading run of chunks that can be had, perhaps none,
// over the socket. It needs neither shared memory nor a lease; with shared
// memory Prefetch is faster.
func (c *Client) Get(ctx context.Context, p Prompt, o GetOptions) ([]Chunk, error) {
	if o.First < 0 || o.MaxChunks < 0 || o.MaxBytes < 0 {
		return nil, refuse("get", ErrBadRequest, "first %d, max chunks %d, max bytes %d: use numbers from 0", o.First, o.MaxChunks, o.MaxBytes)
	}
	ch, err := c.chain(wire.OpGet, &p)
	if err != nil {
		return nil, err
	}
	req := wire.GetRequest{
		Chain: ch, First: uint32(o.First), MaxChunks: uint32(o.MaxChunks),
		MaxBytes: uint32(min(o.MaxBytes, wire.MaxBodyBytes)), Deadline: after(o.Deadline),
	}
	var out []Chunk
	var payloads []byte
	take := func(body []byte) error {
		var m wire.GetReply
		if err := m.Decode(body); err != nil {
			return err
		}
		payloads = append(payloads, m.Payloads...)
		out = make([]Chunk, m.Chunks.Len())
		off := uint64(0)
		for i := range out {
			d := m.Chunks.At(i)
			out[i] = Chunk{Bytes: view(payloads, off, d.Length), Tokens: int(d.Tokens), Sum: d.Sum}
			off += uint64(d.Length)
		}
		return nil
	}
	if err := c.link.do(ctx, wire.OpGet, &req, take, nil); err != nil {
		return nil, err
	}
	for i := range out {
		if arena.Sum(out[i].Bytes) != out[i].Sum {
			return out[:i], ErrCorrupt
		}
	}
	return out, nil
}

// fetch gets chunk i of a job over the socket into dst, which has its length.
func (j *Job) fetch(ctx context.Context, dst []byte, i int, r wire.Ref) error {
	req := wire.GetRequest{
		Chain: wire.Chain{Form: wire.FormRef, ID: j.id},
		First: uint32(i), MaxChunks: 1, MaxBytes: max(1, r.Length),
	}
	err := j.c.link.do(ctx, wire.OpGet, &req, func(body []byte) error {
		var m wire.GetReply
		if err := m.Decode(body); err != nil {
			return err
		}
		if m.Chunks.Len() == 0 {
			return refuse("get", ErrRevoked, "chunk %d of job %d is gone: its lease did not hold", i, j.id)
		}
		if m.Chunks.Len() != 1 || len(m.Payloads) != len(dst) {
			return broken("job %d: chunk %d came as %d chunks of %d bytes", j.id, i, m.Chunks.Len(), len(m.Payloads))
		}
		arena.Copy(dst, m.Payloads)
		return nil
	}, nil)
	if err == nil && arena.Sum(dst) != r.Sum {
		return ErrCorrupt
	}
	return err
}

// Put stores payloads as the chunks First and following of a prompt, over the
// socket. It returns a result for each. With shared memory Reserve and Commit
// are faster. A context that ends in the middle of a payload ends the
// connection: half a frame cannot be taken back.
func (c *Client) Put(ctx context.Context, p Prompt, first int, payloads [][]byte) ([]Stored, error) {
	for i, b := range payloads {
		if len(b) == 0 || int64(len(b)) > int64(c.hello.MaxPayload) {
			return nil, refuse("put", ErrTooLarge, "chunk %d has %d bytes: use 1 to %d", first+i, len(b), c.hello.MaxPayload)
		}
	}
	if first < 0 {
		return nil, refuse("put", ErrBadRequest, "first %d: use numbers from 0", first)
	}
	return c.put(ctx, &p, wire.PutRequest{First: uint32(first)}, payloads, nil)
}

// put sends as many requests as req as the payloads need, one after the other, and
// appends the results to out.
func (c *Client) put(ctx context.Context, p *Prompt, req wire.PutRequest, payloads [][]byte, out []Stored) (_ []Stored, err error) {
	if req.Chain, err = c.chain(wire.OpPut, p); err != nil {
		return out, err
	}
	for len(payloads) > 0 {
		n := batch(payloads, min(int64(c.hello.MaxPayload), int64(c.hello.MaxRequest)/2))
		sizes := make([]uint32, n)
		for i := range sizes {
			sizes[i] = uint32(len(payloads[i]))
		}
		req.Sizes, req.PayloadBytes = wire.ViewU32s(sizes), uint32(sum(payloads[:n]))
		err := c.link.exchange(ctx, &message{
			op: wire.OpPut, head: req.AppendHead, payloads: payloads[:n], take: takeResults(&out, n),
		})
		if err != nil {
			return out, err
		}
		req.First, payloads = req.First+uint32(n), payloads[n:]
	}
	return out, nil
}

func sum(payloads [][]byte) (n int64) {
	for _, p := range payloads {
		n += int64(len(p))
	}
	return n
}

// batch is how many leading payloads go together: at least one, and no more
// than maxBytes of them.
func batch(payloads [][]byte, maxBytes int64) int {
	total := int64(0)
	for i, p := range payloads {
		if total += int64(len(p)); total > maxBytes && i > 0 {
			return i
		}
	}
	return len(payloads)
}
