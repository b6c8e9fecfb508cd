package server

import (
	"cmp"
	"context"
	"errors"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/budget"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/internal/server/hint"
	"github.com/kvstored/kvstored/internal/store"
	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/prefetch"
	"github.com/kvstored/kvstored/tier"
)

// handlePut stores payloads that came with the request.
func handlePut(c *reader, h wire.Header, req wire.PutRequest) (wire.Message, error) {
	var chain key.Chain
	if err := c.resolver.chain(&chain, &req.Chain); err != nil {
		return nil, err
	}
	n := req.Sizes.Len()
	if n == 0 {
		return nil, refuse(wire.CodeBadRequest, "no chunks are given")
	}
	if err := c.session.resultsFit(n); err != nil {
		return nil, err
	}
	from, to, err := span(&chain, req.First, uint32(n))
	if err != nil {
		return nil, err
	}
	sizes, err := c.sizes(req.Sizes, to-from, c.server.maxPayload)
	if err != nil {
		return nil, err
	}
	said, blind := c.prompts.find(&chain), c.rights.blind(chain.Space)
	want := putOptions{said.force, said.allows(req.MaxAge)}
	results := make(wire.Results, 0, 16*n)
	for i, size := range sizes {
		if err := c.session.ctx.Err(); err != nil {
			return nil, err
		}
		payload := req.Payloads[:size]
		req.Payloads = req.Payloads[size:]
		stored, err := putOne(c.session, &chain, from+i, payload, want, blind)
		declined := errors.Is(err, store.ErrNotAdmitted)
		if err != nil && !declined {
			return nil, err
		}
		results = results.Add(stored)
		if declined || stored.Code == wire.CodeOverQuota { // what follows would push out what leads to it
			for range sizes[i+1:] {
				results = results.Add(stored)
			}
			break
		}
	}
	c.server.hints.stored(c.session.uid, &said, &chain, from, to)
	if said.done {
		c.server.o.Store.Planning.MarkCold(&chain)
	}
	return &wire.StoreReply{Results: results}, nil
}

// putOptions is how a client wants chunks stored.
type putOptions struct {
	force  bool
	maxAge time.Duration
}

// putOne stores one chunk. With store.ErrNotAdmitted there is a result as well.
func putOne(c *session, chain *key.Chain, i int, payload []byte, o putOptions, blind bool) (wire.Stored, error) {
	var grants [1]store.Grant
	st := c.server.o.Store
	want := store.Reservation{Owner: c.owner, Force: o.force}
	if _, err := st.Filler.Reserve(c.ctx, want, chain, i, []uint32{uint32(len(payload))}, grants[:]); err != nil {
		return notStored(err)
	}
	switch grants[0].Status {
	case store.Pending:
		return wire.Stored{Code: wire.CodePending}, nil
	case store.Exists:
		return compareStored(c, chain, i, arena.Checksum(payload), blind), nil
	}
	ref := grants[0].Ref
	sum := ref.Block.Write(payload)
	ref.Block.SealSum(sum)
	var stored [1]bool
	st.Filler.Commit(chain, i, []tier.Ref{ref}, o.maxAge, stored[:])
	if !stored[0] {
		return compareStored(c, chain, i, sum, blind), nil
	}
	c.server.count.stored(1, uint64(len(payload)))
	c.server.model(chain.Space).storedBytes.Add(uint64(len(payload)))
	return wire.Stored{Code: wire.CodeOK, Sum: sum}, nil
}

// compareStored says whether a chunk that was there already has the bytes that sum to
// ours, as far as that can be told without I/O. A blind client is not told.
func compareStored(c *session, chain *key.Chain, i int, ours uint64, blind bool) wire.Stored {
	if blind {
		return wire.Stored{Code: wire.CodeExists}
	}
	sum, _, known := c.server.o.Store.Leases.Sum(c.owner, chain, i)
	if !known {
		return wire.Stored{Code: wire.CodeExists}
	}
	if sum != ours {
		logConflict(c, chain, i, "stored again")
		return wire.Stored{Code: wire.CodeDiffers, Sum: sum}
	}
	return wire.Stored{Code: wire.CodeExists, Sum: sum}
}

// notStored is the result of a chunk for which there is no room. An error beside it
// says that what follows is not wanted either; without a result the request fails.
func notStored(err error) (wire.Stored, error) {
	switch code := codeOf(err); code {
	case wire.CodeOverBudget, wire.CodeOverQuota, wire.CodeNoSpace:
		return wire.Stored{Code: code}, nil
	case wire.CodeDeclined:
		return wire.Stored{Code: code}, err
	}
	return wire.Stored{}, err
}

// maxInline is how many payload bytes a connection's gets that wait may copy
// at a time; one of the largest chunks always fits. Each is there twice while it
// becomes a frame.
const maxInline = wire.MaxPayloadBytes

// handleGet answers payloads inline: at once if they are in DRAM, later if they
// must be promoted.
func handleGet(c *reader, h wire.Header, req wire.GetRequest) (wire.Message, error) {
	g := &get{session: c.session, limit: int(req.MaxBytes), copies: budget.Held{Account: c.session.account}}
	if most := min(wire.MaxPayloadBytes, c.session.maxReply-replyBytes); g.limit == 0 || g.limit > most {
		g.limit = most
	}
	err := g.answer(c, h, &req)
	if !c.late { // else the goroutine that answers does
		g.giveBack()
	}
	return nil, err
}

// answer sends the reply, or leaves it to a goroutine.
func (g *get) answer(c *reader, h wire.Header, req *wire.GetRequest) error {
	if err := c.resolver.chain(&g.chain, &req.Chain); err != nil {
		return err
	}
	from, to, err := g.span(req)
	if err != nil {
		return err
	}
	g.chain.Skip, g.end, g.counts = from, to, req.Chain.Form != wire.FormRef
	g.begins = g.counts && req.First == 0
	m, err := c.server.o.Store.Lookups.Match(c.session.ctx, &g.chain, tier.All)
	if err != nil {
		return err
	}
	if g.begins {
		c.prompts.observe([]key.Chain{g.chain}, false, hint.Advice{})
	}
	rest, _ := c.server.o.Store.Lookups.ScanRemote(&g.chain, from+m.Chunks, tier.All)
	if from+m.Chunks >= to {
		rest = nil
	} else if rest == nil {
		to = from + m.Chunks
	}
	if hot := min(to, from+m.Hot); rest == nil && (g.full || hot == to || g.fits(from, hot)) {
		// A chunk that is evicted this very moment ends the run: the reader must
		// not wait for its promotion.
		g.gather(c.session.ctx, from, to, tier.Of(tier.CPU))
		if g.err == nil {
			g.err = c.makeRoom(g.frameBytes())
		}
		if err := cmp.Or(g.err, g.refused); err != nil {
			return err
		}
		c.reply(h, &g.reply)
		return nil
	}
	return g.answerLater(c, h, req, from, to, rest)
}

// span is the chunks that the request asks for. g.chain is that of the request.
func (g *get) span(req *wire.GetRequest) (from, to int, err error) {
	from, to, err = span(&g.chain, req.First, 0)
	if err != nil {
		return 0, 0, err
	}
	if req.MaxChunks > 0 {
		to = min(to, from+int(req.MaxChunks))
	}
	if req.Chain.Form == wire.FormRef {
		from = g.underLease(req.Chain.ID, from, to)
	}
	return from, to, nil
}

// answerLater answers a get that promotes chunks first, in a goroutine of its own.
// rest, if it is not nil, is the scan of the remote tier that says how far the
// prefix goes.
func (g *get) answerLater(c *reader, h wire.Header, req *wire.GetRequest, from, to int, rest *store.RemoteScan) error {
	deadline := req.Deadline.Or(c.server.settings().Prefetch.Deadline)
	start := time.Now()
	return c.async(h, func(whole context.Context) {
		defer func() { c.server.took(h.Op, time.Since(start)) }()
		defer g.giveBack()
		ctx, cancel := context.WithTimeoutCause(whole, deadline, prefetch.ErrDeadline)
		defer cancel()
		if rest != nil {
			rest.Find(ctx)
			to = min(to, rest.Found())
		}
		g.room = c.session.inline
		g.gather(ctx, from, to, tier.All)
		c.session.awaitRoom(ctx)
		if err := asCancelled(whole, whole.Err()); err != nil && c.session.ctx.Err() == nil {
			g.refused = err
		}
		g.answerAsync(h)
	})
}

// get is one inline get.
type get struct {
	session *session
	chain   key.Chain
	end     int                 // of what is asked for
	limit   int                 // payload bytes, but for the first chunk
	counts  bool                // but not what a ref reads, which its job counts
	begins  bool                // else it goes on with what it has asked for
	full    bool                // what comes next does not fit
	room    *semaphore.Weighted // for the copies; nil: no need to ask
	taken   int64               // of room
	copies  budget.Held         // for what the reply copies
	err     error               // the connection ends
	refused error               // there is no reply but a refusal
	reply   wire.GetReply
}

// giveBack returns what the copies took.
func (g *get) giveBack() {
	if g.room != nil {
		g.room.Release(g.taken)
	}
	_ = g.copies.Set(0) // releases
}

// frameBytes is at least what the reply takes as a frame.
func (g *get) frameBytes() int {
	const chunkBytes = 16 // as the protocol has it
	return wire.HeaderBytes + 3*8 + chunkBytes*g.reply.Chunks.Len() + len(g.reply.Payloads)
}

// answerAsync sends the reply of a get that was answered in a goroutine of its own.
func (g *get) answerAsync(h wire.Header) {
	c, n := g.session, g.frameBytes()
	frame := budget.Held{Account: c.account}
	defer frame.Set(0) //nolint:errcheck // it releases
	if g.err == nil {
		g.err = frame.Set(int64(n))
	}
	c.answered(h.ID)
	if g.err != nil {
		return // the connection ends
	}
	if g.refused != nil {
		c.out.send(c.appendRefusal(nil, h, g.refused))
		return
	}
	c.out.send(wire.AppendReply(make([]byte, 0, n), h.Op, h.ID, &g.reply))
}

// underLease takes what a job of the connection holds, and returns the first
// chunk that it does not. A chunk that was deleted meanwhile is still there
// for those who have it leased.
func (g *get) underLease(id uint64, from, to int) int {
	j, err := g.session.job(id)
	for err == nil && from < to {
		b, ok := j.leased(from - j.prompt.skip())
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
	st, owner := g.session.server.o.Store, g.session.owner
	i := from
	for ; i < to && !g.full; i++ {
		ref, place, err := st.Loader.Load(ctx, store.Requester{Owner: owner}, &g.chain, i, search)
		if err != nil { // a shorter prefix
			g.lacks(i, to, cmp.Or(context.Cause(ctx), err))
			break
		}
		bytes := ref.Block.Len()
		fits := g.fitsRoom(ctx, int64(ref.Block.Len())) && g.add(ref.Block, g.chain.Tokens[i])
		st.Leases.Release(owner, ledger.Lease, []tier.Ref{ref})
		if !fits {
			break
		}
		if g.counts {
			g.session.server.count.got(g.session.server.model(g.chain.Space), place, uint64(g.chain.Tokens[i]), bytes)
		}
	}
	g.lacks(to, g.end, nil)
	st.Leases.Touch(&g.chain, from, i)
}

// lacks counts chunks from..to, which are not there: with an error they did not come up.
// What a limit cuts off counts with the get that goes on with it.
func (g *get) lacks(from, to int, err error) {
	if !g.begins || from >= to || g.session.ctx.Err() != nil {
		return
	}
	s, tokens := g.session.server, g.chain.TokensIn(from, to)
	why := s.o.Store.Lookups.Why(&g.chain, from, tier.All)
	if err != nil {
		code, _ := endOf(err)
		why = whyShort(code, err)
	}
	s.count.askedChunks.Add(uint64(to - from))
	s.count.askedTokens.Add(tokens)
	s.count.missed.Add(&why, tokens)
	s.model(g.chain.Space).asked.Add(tokens)
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

// replyBytes is more than what a reply without payloads has for each of 64 chunks.
const replyBytes = 2 << 10

func (g *get) add(b arena.Block, tokens uint32) bool {
	n := g.reply.Chunks.Len()
	if most := g.session.maxReply - replyBytes; n == 0 && b.Len() > most {
		g.full, g.refused = true, tooLarge(int64(most), "a chunk of %d bytes does not fit the largest reply, which was agreed to have %d", b.Len(), g.session.maxReply)
		return false
	}
	if n > 0 && (len(g.reply.Payloads)+b.Len() > g.limit || g.frameBytes()+16+b.Len() > g.session.maxReply) {
		g.full = true
		return false
	}
	if !g.grow(b.Len()) {
		return false
	}
	g.reply.Chunks = g.reply.Chunks.Add(wire.Chunk{Length: uint32(b.Len()), Tokens: tokens, Sum: b.Sum()})
	at := len(g.reply.Payloads)
	g.reply.Payloads = g.reply.Payloads[:at+b.Len()]
	arena.Copy(g.reply.Payloads[at:], b.Bytes())
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
	st, owner := g.session.server.o.Store, g.session.owner
	n, _ := st.Leases.Hold(owner, ledger.IO, &g.chain, from, to, refs)
	total := len(g.reply.Payloads)
	for _, r := range refs[:n] {
		total += r.Block.Len()
	}
	st.Leases.Release(owner, ledger.IO, refs[:n])
	return n > 0 && total > g.limit
}
