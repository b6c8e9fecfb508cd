package server

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/kvstored/kvstored/internal/access"
	"github.com/kvstored/kvstored/internal/fair"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

// handle answers one request of a greeted client.
func (c *session) handle(h wire.Header, body []byte) error {
	do, ok := handlers[h.Op]
	if !ok {
		return refuse(wire.StatusUnknownOp, "%s is unknown here; the daemon speaks version %d", h.Op, wire.Version)
	}
	if err := c.allowed(h.Op); err != nil {
		return err
	}
	c.server.count.requests.Add(1)
	if holds[h.Op] && c.owner == ledger.Daemon {
		c.owner = c.server.o.Stack.NewOwner()
	}
	return do(c, h, body)
}

// holds is the operations that make a connection an owner: one that only asks
// for statistics must not halve what the others may hold.
var holds = map[wire.Op]bool{
	wire.OpPrefetch: true, wire.OpBatch: true, wire.OpReserve: true, wire.OpPut: true, wire.OpGet: true, wire.OpPin: true,
}

// handlers is every operation after hello.
var handlers map[wire.Op]func(*session, wire.Header, []byte) error

func init() { // a literal would refer to itself
	handlers = map[wire.Op]func(*session, wire.Header, []byte) error{
		wire.OpHello:     (*session).helloAgain,
		wire.OpOpenSpace: (*session).openSpace,
		wire.OpLookup:    (*session).lookup,
		wire.OpPrefetch:  (*session).prefetch,
		wire.OpWait:      (*session).wait,
		wire.OpCancel:    (*session).cancel,
		wire.OpReserve:   (*session).reserve,
		wire.OpCommit:    (*session).commit,
		wire.OpAbort:     (*session).abort,
		wire.OpPut:       (*session).put,
		wire.OpGet:       (*session).get,
		wire.OpRelease:   (*session).release,
		wire.OpRenew:     (*session).renew,
		wire.OpPin:       (*session).pin,
		wire.OpUnpin:     (*session).unpin,
		wire.OpDelete:    (*session).delete,
		wire.OpFlush:     (*session).flushTiers,
		wire.OpStats:     (*session).stats,
		wire.OpPing:      (*session).ping,
		wire.OpWarm:      (*session).warm,
		wire.OpBatch:     (*session).batch,
		wire.OpScrub:     (*session).scrub,
		wire.OpPins:      (*session).listPins,
		wire.OpRevoke:    (*session).revoke,
		wire.OpPolicy:    (*session).policy,
		wire.OpClear:     (*session).clear,
		wire.OpPurge:     (*session).purge,
		wire.OpSpaces:    (*session).listSpaces,
		wire.OpRebuild:   (*session).rebuild,
	}
}

func (c *session) helloAgain(wire.Header, []byte) error {
	return refuse(wire.StatusBadRequest, "hello was said already; open another connection")
}

func (c *session) openSpace(h wire.Header, body []byte) error {
	var req wire.OpenSpaceRequest
	if err := req.Decode(body); err != nil {
		return err
	}
	info, err := c.openSpaceOf(req.Space)
	if err != nil {
		return err
	}
	c.reply(h, &wire.OpenSpaceReply{Space: info})
	return nil
}

func (c *session) ping(h wire.Header, body []byte) error {
	var req wire.EmptyRequest
	if err := req.Decode(body); err != nil {
		return err
	}
	c.reply(h, wire.EmptyReply{})
	return nil
}

func (c *session) stats(h wire.Header, body []byte) error {
	var req wire.EmptyRequest
	if err := req.Decode(body); err != nil {
		return err
	}
	json, err := c.server.o.Stats(wire.Rights(c.judged.everywhere))
	if err != nil {
		return fmt.Errorf("stats: %w", err)
	}
	c.reply(h, &wire.StatsReply{JSON: json})
	return nil
}

func (c *session) delete(h wire.Header, body []byte) error {
	var req wire.DeleteRequest
	if err := req.Decode(body); err != nil {
		return err
	}
	stack := c.server.o.Stack
	var ks []key.Key
	switch req.What {
	case wire.DeleteSpace:
		sp, err := c.space(req.Space)
		if err != nil {
			return err
		}
		if sp.rights&access.Admin == 0 {
			return c.denied("delete a space of model %.80q", sp.model)
		}
		return c.later(h, func(ctx context.Context) (wire.Message, error) {
			n, err := stack.DeleteSpace(ctx, sp.info.ID)
			return &wire.ChunksReply{Chunks: uint64(n)}, err
		})
	case wire.DeleteChain:
		var chain key.Chain
		if err := c.chain(&chain, &req.Chain); err != nil {
			return err
		}
		ks = make([]key.Key, 0, chain.Len()-chain.Skip)
		for i := chain.Skip; i < chain.Len(); i++ {
			ks = append(ks, chain.Key(i))
		}
	case wire.DeleteChunks:
		sp, err := c.space(req.Space)
		if err != nil {
			return err
		}
		for width := int(req.Width); len(req.Hashes) >= width; req.Hashes = req.Hashes[width:] {
			k := key.Key{Space: sp.info.ID}
			copy(k.Hash[:], req.Hashes[:width])
			ks = append(ks, k)
		}
	}
	return c.later(h, func(ctx context.Context) (wire.Message, error) {
		turn := c.tenant.NewTurn()
		defer turn.Leave()
		turn.Begin(time.Now())
		n, err := stack.Delete(fair.With(ctx, turn), ks)
		return &wire.ChunksReply{Chunks: uint64(n)}, err
	})
}

// flushTiers waits for what is unwritten. It tells what was dropped since
// this connection's last flush, or since it began.
func (c *session) flushTiers(h wire.Header, body []byte) error {
	var req wire.FlushRequest
	if err := req.Decode(body); err != nil {
		return err
	}
	return c.later(h, func(ctx context.Context) (wire.Message, error) {
		if req.TimeoutMillis > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, time.Duration(req.TimeoutMillis)*time.Millisecond)
			defer cancel()
		}
		if err := c.server.o.Stack.Flush(ctx, req.Durable); err != nil {
			return nil, err
		}
		reply, dropped := c.flushed.advance(c.server.o.Stack.Written())
		if reason, v := c.server.o.Stack.Kept(dropped); v.Chunks > 0 {
			reply.Left = reply.Left.Add(wire.Leftover{Reason: reason, Chunks: v.Chunks, Bytes: v.Bytes})
		}
		return reply, nil
	})
}

// flushMark is what had been written and dropped at some time, summed over
// the tiers.
type flushMark struct {
	mu struct {
		sync.Mutex
		written tier.Volume
		dropped map[tier.DropReason]tier.Volume
	}
}

// advance moves the mark to ws and returns what lies between, and how much of
// that was dropped.
func (m *flushMark) advance(ws map[tier.Place]tier.Written) (*wire.FlushReply, tier.Volume) {
	var written, all tier.Volume
	dropped := make(map[tier.DropReason]tier.Volume)
	for _, w := range ws {
		written = written.Plus(w.Written)
		for r, v := range w.Dropped {
			dropped[r] = dropped[r].Plus(v)
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	d := written.Minus(m.mu.written)
	reply := &wire.FlushReply{Chunks: d.Chunks, Bytes: d.Bytes}
	for r, v := range dropped {
		if d := v.Minus(m.mu.dropped[r]); d.Chunks > 0 {
			reply.Left = reply.Left.Add(wire.Leftover{Reason: r.String(), Chunks: d.Chunks, Bytes: d.Bytes})
			all = all.Plus(d)
		}
	}
	m.mu.written, m.mu.dropped = written, dropped
	return reply, all
}
