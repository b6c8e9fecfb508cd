package server

import (
	"context"
	"fmt"
	"sync"
	"unsafe"

	"github.com/kvstored/kvstored/internal/access"
	"github.com/kvstored/kvstored/internal/stack"
	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

func handleHelloAgain(c *reader, _ wire.Header, _ []byte) error {
	return refuse(wire.CodeBadRequest, "hello was said already; open another connection")
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

const keyBytes = int64(unsafe.Sizeof(key.Key{}))

func handleDelete(c *reader, h wire.Header, body []byte) error {
	var req wire.DeleteRequest
	if err := req.Decode(body); err != nil {
		return err
	}
	if req.Chain.Form == wire.FormNone {
		return deleteSpace(c, h, &req)
	}
	var chain key.Chain
	if err := c.chain(&chain, &req.Chain); err != nil {
		return err
	}
	if err := c.spend(keyBytes * int64(chain.Len()-chain.Skip)); err != nil {
		return err
	}
	ks := make([]key.Key, 0, chain.Len()-chain.Skip)
	for i := chain.Skip; i < chain.Len(); i++ {
		ks = append(ks, chain.Key(i))
	}
	d := c.server.o.Stack.Forget(c.ctx, ks) // from now on no lookup finds them
	return forget(c, h, d, func(ctx context.Context) (wire.Message, error) {
		ctx, cancel := within(ctx, req.Deadline)
		defer cancel()
		n, err := d.Delete(ctx)
		return &wire.ChunksReply{Chunks: uint64(n)}, err
	})
}

// forget is asyncReply for what ends a deletion that has begun.
func forget(c *reader, h wire.Header, d *stack.Forgetting, do func(ctx context.Context) (wire.Message, error)) error {
	err := c.asyncReply(h, func(ctx context.Context) (wire.Message, error) {
		defer d.End()
		return do(ctx)
	})
	if err != nil {
		d.End()
	}
	return err
}

// deleteSpace deletes all of a space.
func deleteSpace(c *reader, h wire.Header, req *wire.DeleteRequest) error {
	sp, err := c.space(req.Chain.Space)
	if err != nil {
		return err
	}
	if sp.rights&access.Admin == 0 {
		return c.denied("delete a space of model %.80q", sp.model)
	}
	d := c.server.o.Stack.ForgetSpace(sp.info.ID)
	return forget(c, h, d, func(ctx context.Context) (wire.Message, error) {
		ctx, cancel := within(ctx, req.Deadline)
		defer cancel()
		n, err := d.Delete(ctx)
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
		ctx, cancel := within(ctx, req.Deadline)
		defer cancel()
		if err := c.server.o.Stack.Flush(ctx, req.Durable); err != nil {
			return nil, err
		}
		reply, dropped := c.flushed.advance(c.server.o.Stack.Written())
		if reason, v := c.server.o.Stack.Unflushed(dropped); v.Chunks > 0 {
			reply.Left = append(reply.Left, wire.Leftover{Reason: reason, Chunks: v.Chunks, Bytes: v.Bytes})
		}
		if v := c.server.o.Stack.Cleared(); v.Chunks > 0 {
			reply.Left = append(reply.Left, wire.Leftover{Reason: "cleared", Chunks: v.Chunks, Bytes: v.Bytes})
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
		if r == stack.DropNotWorth {
			continue // before the flush, which has written them if DRAM still has them
		}
		if d := v.Minus(m.mu.dropped[r]); d.Chunks > 0 {
			reply.Left = append(reply.Left, wire.Leftover{Reason: r.String(), Chunks: d.Chunks, Bytes: d.Bytes})
			all = all.Plus(d)
		}
	}
	m.mu.written, m.mu.dropped = written, dropped
	return reply, all
}
