package server

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/kvstored/kvstored/internal/access"
	"github.com/kvstored/kvstored/internal/fair"
	"github.com/kvstored/kvstored/internal/stack"
	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

func handleHelloAgain(c *reader, _ wire.Header, _ []byte) error {
	return refuse(wire.StatusBadRequest, "hello was said already; open another connection")
}

func handleOpenSpace(c *reader, h wire.Header, body []byte) error {
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

func handlePing(c *reader, h wire.Header, body []byte) error {
	var req wire.EmptyRequest
	if err := req.Decode(body); err != nil {
		return err
	}
	c.reply(h, wire.EmptyReply{})
	return nil
}

func handleStats(c *reader, h wire.Header, body []byte) error {
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

func handleDelete(c *reader, h wire.Header, body []byte) error {
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
		return c.asyncReply(h, func(ctx context.Context) (wire.Message, error) {
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
	return c.asyncReply(h, func(ctx context.Context) (wire.Message, error) {
		turn := c.tenant.NewTurn()
		defer turn.Leave()
		if err := turn.Begin(ctx, time.Now()); err != nil {
			return nil, err
		}
		n, err := stack.Delete(fair.With(ctx, turn), ks)
		return &wire.ChunksReply{Chunks: uint64(n)}, err
	})
}

// handleFlush waits until all is written. It tells which chunks were dropped since
// this connection's last flush, or since it began.
func handleFlush(c *reader, h wire.Header, body []byte) error {
	var req wire.FlushRequest
	if err := req.Decode(body); err != nil {
		return err
	}
	return c.asyncReply(h, func(ctx context.Context) (wire.Message, error) {
		if req.TimeoutMillis > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, time.Duration(req.TimeoutMillis)*time.Millisecond)
			defer cancel()
		}
		if err := c.server.o.Stack.Flush(ctx, req.Durable); err != nil {
			return nil, err
		}
		reply, dropped := c.flushed.advance(c.server.o.Stack.Written())
		if reason, v := c.server.o.Stack.Unflushed(dropped); v.Chunks > 0 {
			reply.Left = reply.Left.Add(wire.Leftover{Reason: reason, Chunks: v.Chunks, Bytes: v.Bytes})
		}
		if v := c.server.o.Stack.Cleared(); v.Chunks > 0 {
			reply.Left = reply.Left.Add(wire.Leftover{Reason: "cleared", Chunks: v.Chunks, Bytes: v.Bytes})
		}
		return reply, nil
	})
}

// flushMark is how much the writers had written and dropped at some time, summed
// over the tiers.
type flushMark struct {
	mu struct {
		sync.Mutex
		written stack.Volume
		dropped map[stack.DropReason]stack.Volume
	}
}

// advance moves the mark to ws and returns what lies between, and how much of
// that was dropped.
func (m *flushMark) advance(ws map[tier.Place]stack.Written) (*wire.FlushReply, stack.Volume) {
	var written, all stack.Volume
	dropped := make(map[stack.DropReason]stack.Volume)
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
