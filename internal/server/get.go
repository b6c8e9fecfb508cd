package server

import (
	"context"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/budget"
	"github.com/kvstored/kvstored/internal/bulk"
	"github.com/kvstored/kvstored/internal/fair"
	"github.com/kvstored/kvstored/internal/hint"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

// maxInline is how many payload bytes a connection's gets that wait may copy
// at a time; one of the largest chunks always fits. Each is there twice while it
// becomes a frame.
const maxInline = wire.MaxPayloadBytes

// handleGet answers payloads inline: at once if they are in DRAM, later if they
// must come up.
func handleGet(c *reader, h wire.Header, body []byte) error {
	var req wire.GetRequest
	if err := req.Decode(body); err != nil {
		return err
	}
	g := &get{session: c.session, limit: int(req.MaxBytes), copies: budget.Held{Account: c.account}}
	if g.limit == 0 || g.limit > wire.MaxPayloadBytes {
		g.limit = wire.MaxPayloadBytes
	}
	err := g.answer(c, h, &req)
	if !c.late { // else the goroutine that answers does
		g.letGo()
	}
	return err
}

// answer sends the reply, or leaves it to a goroutine.
func (g *get) answer(c *reader, h wire.Header, req *wire.GetRequest) error {
	if err := c.chain(&g.chain, &req.Chain); err != nil {
		return err
	}
	from, to, err := span(&g.chain, req.First, 0)
	if err != nil {
		return err
	}
	if req.MaxChunks > 0 {
		to = min(to, from+int(req.MaxChunks))
	}
	if req.Chain.Form == wire.FormRef {
		from = g.underLease(req.Chain.Ref, from, to)
	}
	g.chain.Skip = from
	m, err := c.server.o.Stack.Match(c.turning, &g.chain, tier.All)
	if err != nil {
		return err
	}
	if req.Chain.Form != wire.FormRef && req.First == 0 { // else it goes on with what it has asked for
		c.prompts.announce(&g.chain, nil, false, hint.Advice{})
	}
	rest := c.server.o.Stack.ScanRemote(&g.chain, &m, tier.All)
	if rest != nil && rest.Begin() >= to {
		rest = nil
	}
	if rest == nil {
		to = min(to, from+m.Chunks)
	}
	if hot := min(to, from+m.Hot); rest == nil && (g.full || hot == to || g.fits(from, hot)) {
		// A chunk that is evicted this very moment ends the run: the reader must
		// not wait for its promotion.
		g.gather(c.turning, from, to, tier.Of(tier.CPU))
		if g.err == nil {
			g.err = c.makeRoom(g.frameBytes())
		}
		if g.err != nil {
			return g.err
		}
		c.reply(h, &g.reply)
		return nil
	}
	deadline := time.Duration(req.DeadlineMillis) * time.Millisecond
	if deadline == 0 {
		deadline = c.server.settings().Prefetch.Deadline
	}
	start := time.Now()
	return c.async(func(ctx context.Context) {
		defer func() { c.server.observe(h.Op, time.Since(start)) }()
		defer g.letGo()
		ctx, cancel := context.WithTimeout(ctx, deadline)
		defer cancel()
		to := to
		if rest != nil {
			rest.Find(ctx)
			to = min(to, rest.Found())
		}
		g.room = c.inline
		g.gather(ctx, from, to, tier.All)
		c.awaitRoom(ctx)
		g.answerAsync(h)
	})
}

// get is one inline get.
type get struct {
	session *session
	chain   key.Chain
	limit   int                 // payload bytes, but for the first chunk
	full    bool                // what comes next does not fit
	room    *semaphore.Weighted // for the copies; nil: no need to ask
	taken   int64               // of room
	copies  budget.Held         // for what the reply copies
	err     error               // the connection ends
	reply   wire.GetReply
}

// letGo gives back what the copies took.
func (g *get) letGo() {
	if g.room != nil {
		g.room.Release(g.taken)
	}
	_ = g.copies.Set(0) // releases
}

// frameBytes is at least what the reply takes as a frame.
func (g *get) frameBytes() int {
	const chunkBytes = 16 // as the protocol has it, with the list's length for the first
	return wire.HeaderBytes + chunkBytes*(g.reply.Chunks.Len()+1) + len(g.reply.Payloads)
}

// answerAsync sends the reply of a get that was answered in a goroutine of its own.
func (g *get) answerAsync(h wire.Header) {
	c, n := g.session, g.frameBytes()
	frame := budget.Held{Account: c.account}
	if g.err == nil {
		g.err = frame.Set(int64(n))
	}
	c.open.Add(-1) // before the reply: with it in hand the client may ask again
	if g.err != nil {
		return // the connection ends
	}
	c.out.send(wire.AppendReply(make([]byte, 0, n), h.Op, h.ID, &g.reply))
	_ = frame.Set(0) // releases
}

// underLease takes what a job of the connection holds, and returns the first
// chunk that it does not. A chunk that was deleted meanwhile is still there
// for those who have it leased.
func (g *get) underLease(id uint64, from, to int) int {
	j, err := g.session.job(id)
	for err == nil && from < to {
		b, ok := j.leased(from - j.chain.Skip)
		if !ok {
			break
		}
		ok = g.add(b, g.chain.Tokens[from])
		b.Release()
		if !ok {
			break
		}
		from++
	}
	return from
}

// gather takes chunks from..to into the reply, as far as the limit and the
// context go.
func (g *get) gather(ctx context.Context, from, to int, search tier.Set) {
	stack, owner := g.session.server.o.Stack, g.session.owner
	i := from
	for ; i < to && !g.full; i++ {
		fair.Yield(ctx)
		ref, place, err := stack.Load(ctx, owner, &g.chain, i, search)
		if err != nil {
			break // a shorter prefix
		}
		fits := g.fitsRoom(ctx, int64(ref.Block.Len())) && g.add(ref.Block, g.chain.Tokens[i])
		stack.Release(owner, ledger.Lease, []tier.Ref{ref})
		if !fits {
			break
		}
		g.session.server.count.got(place, g.chain.Tokens[i])
	}
	stack.Touch(&g.chain, from, i)
}

// fitsRoom takes room for n bytes. It waits for the first chunk's only, so
// that gets do not wait for each other.
func (g *get) fitsRoom(ctx context.Context, n int64) bool {
	switch {
	case g.room == nil:
		return true
	case g.reply.Chunks.Len() == 0 && g.room.Acquire(ctx, n) != nil:
		return false
	case g.reply.Chunks.Len() > 0 && !g.room.TryAcquire(n):
		return false
	}
	g.taken += n
	return true
}

func (g *get) add(b arena.Block, tokens uint32) bool {
	if g.reply.Chunks.Len() > 0 && len(g.reply.Payloads)+b.Len() > g.limit {
		g.full = true
		return false
	}
	if !g.grow(b.Len()) {
		return false
	}
	g.reply.Chunks = g.reply.Chunks.Add(wire.Chunk{Length: uint32(b.Len()), Tokens: tokens, Sum: b.Sum()})
	at := len(g.reply.Payloads)
	g.reply.Payloads = g.reply.Payloads[:at+b.Len()]
	bulk.Copy(g.reply.Payloads[at:], b.Bytes())
	return true
}

// grow makes room for n bytes of payload: what the first chunk takes, then by
// doubling up to the limit.
func (g *get) grow(n int) bool {
	had, need := cap(g.reply.Payloads), len(g.reply.Payloads)+n
	if need <= had {
		return true
	}
	size := max(need, min(2*had, g.limit))
	if g.err = g.copies.Set(int64(had + size)); g.err != nil { // both are there while one is copied
		return false
	}
	g.reply.Payloads = append(make([]byte, 0, size), g.reply.Payloads...)
	_ = g.copies.Set(int64(size)) // releases
	return true
}

// fits reports whether the limit ends the answer before chunk to, so that
// nothing has to come up.
func (g *get) fits(from, to int) bool {
	refs := make([]tier.Ref, to-from)
	stack, owner := g.session.server.o.Stack, g.session.owner
	n, _ := stack.Hold(owner, ledger.IO, &g.chain, from, to, refs)
	total := len(g.reply.Payloads)
	for _, r := range refs[:n] {
		total += r.Block.Len()
	}
	stack.Release(owner, ledger.IO, refs[:n])
	return n > 0 && total > g.limit
}
