package server

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
	"unsafe"

	"github.com/kvstored/kvstored/internal/access"
	"github.com/kvstored/kvstored/internal/explain"
	"github.com/kvstored/kvstored/internal/stale"
	"github.com/kvstored/kvstored/internal/store"
	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/internal/writeback"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

func handleHelloAgain(*reader, wire.Header, []byte) (wire.Message, error) {
	return nil, refuse(wire.CodeBadRequest, "hello was said already; open another connection")
}

func handleOpenSpace(c *reader, h wire.Header, req wire.OpenSpaceRequest) (wire.Message, error) {
	info, err := c.rights.openSpaceOf(req.Space)
	reply, model := &wire.OpenSpaceReply{Space: info}, req.Space.Model
	switch {
	case err != nil || !req.Distrust:
		return reply, err
	case c.rights.policy.Model(c.session.uid, model)&access.Write == 0:
		return nil, c.rights.denied("distrust a space of model %.80q", model)
	}
	return c.asyncReply(h, func(context.Context) (wire.Message, error) { return reply, c.session.distrust(info.ID, model) })
}

// distrust has everything of a space be a miss from now on.
func (c *session) distrust(id key.SpaceID, model string) error {
	first, err := c.server.o.Store.Operator.Distrusted().Add(id, stale.Distrust{UID: c.uid, Since: time.Unix(time.Now().Unix(), 0)})
	if first {
		c.server.naming.add(id)
		c.server.o.Log.Warn().Err(err).Uint32("uid", c.uid).Str("model", model).Hex("space", id[:]).Msg("a client distrusts a space: all of it is a miss until `kvstored forget --distrust`")
	}
	if err != nil && !errors.Is(err, stale.ErrManyDistrusted) {
		err = refuse(wire.CodeFailed, "distrust: it holds until the daemon ends, but is not kept: %v", err)
	}
	return err
}

// Trust ends the distrust of a space, if there is any.
func (s *Server) Trust(id key.SpaceID) (was bool, err error) {
	defer s.naming.add(id)
	return s.o.Store.Operator.Distrusted().Trust(id)
}

func handlePing(c *reader, h wire.Header, req wire.EmptyRequest) (wire.Message, error) {
	return wire.EmptyReply{}, nil
}

func handleStats(c *reader, h wire.Header, req wire.EmptyRequest) (wire.Message, error) {
	json, err := c.server.o.Stats(wire.Rights(c.rights.everywhere))
	if err != nil {
		return nil, fmt.Errorf("stats: %w", err)
	}
	return &wire.StatsReply{JSON: json}, nil
}

const keyBytes = int64(unsafe.Sizeof(key.Key{}))

func handleDelete(c *reader, h wire.Header, req wire.DeleteRequest) (wire.Message, error) {
	if req.Chain.Form == wire.FormNone {
		sp, err := c.rights.space(req.Chain.Space)
		if err == nil && sp.rights&access.Admin == 0 {
			err = c.rights.denied("delete a space of model %.80q", sp.model)
		}
		if err != nil {
			return nil, err
		}
		return forget(c, h, c.server.o.Store.Remover.ForgetSpace(sp.info.ID), req.Deadline)
	}
	var chain key.Chain
	if err := c.resolver.chain(&chain, &req.Chain); err != nil {
		return nil, err
	}
	if err := c.spent.Add(keyBytes * int64(chain.Len()-chain.Skip)); err != nil {
		return nil, err
	}
	ks := make([]key.Key, 0, chain.Len()-chain.Skip)
	for i := chain.Skip; i < chain.Len(); i++ {
		ks = append(ks, chain.Key(i))
	}
	return forget(c, h, c.server.o.Store.Remover.Forget(c.session.ctx, ks), req.Deadline) // from now on no lookup finds them
}

// forget answers when a deletion that has begun is done.
func forget(c *reader, h wire.Header, d *store.Forgetting, deadline wire.Deadline) (wire.Message, error) {
	m, err := c.asyncReply(h, func(ctx context.Context) (wire.Message, error) {
		defer d.End()
		ctx, cancel := within(ctx, deadline)
		defer cancel()
		n, err := d.Delete(ctx)
		return &wire.DeleteReply{Chunks: uint64(n)}, err
	})
	if err != nil {
		d.End()
	}
	return m, err
}

// handleFlush waits until all is written. It tells which chunks were dropped since
// this connection's last flush, or since it began.
func handleFlush(c *reader, h wire.Header, req wire.FlushRequest) (wire.Message, error) {
	return c.asyncReply(h, func(ctx context.Context) (wire.Message, error) {
		ctx, cancel := within(ctx, req.Deadline)
		defer cancel()
		if err := c.server.o.Store.Writers.Flush(ctx, req.Durable); err != nil {
			return nil, err
		}
		reply, dropped := c.session.flushed.advance(c.server.o.Store.Writers.Written())
		if reason, v := c.server.o.Store.Writers.Unflushed(dropped); v.Chunks > 0 {
			reply.Left = append(reply.Left, wire.Leftover{Reason: reason, Chunks: v.Chunks, Bytes: v.Bytes})
		}
		if v := c.server.o.Store.Remover.Cleared(); v.Chunks > 0 {
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
		written writeback.Volume
		dropped map[explain.Decline]writeback.Volume
	}
}

// advance moves the mark to ws and returns what lies between, and how much of
// that was dropped.
func (m *flushMark) advance(ws map[tier.Place]writeback.Written) (*wire.FlushReply, writeback.Volume) {
	var written, all writeback.Volume
	dropped := make(map[explain.Decline]writeback.Volume)
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
		if r == explain.NotWorth {
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
