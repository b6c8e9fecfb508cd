package server

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/internal/store"
	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

func handleReserve(c *reader, h wire.Header, req wire.ReserveRequest) (wire.Message, error) {
	if c.session.puts == wire.PutInline {
		return nil, refuse(wire.CodeUnsupported, "this connection has no staging window; ask for one in hello, or use put")
	}
	f := &fill{session: c.session, maxAge: req.MaxAge}
	if err := c.resolver.promptOf(&f.chain, &req.Chain, &wire.Shared{Groups: req.Groups, Grain: req.Grain}); err != nil {
		return nil, err
	}
	f.spaces = []key.SpaceID{f.chain.Space}
	if stored := c.server.o.Stored; stored != nil {
		stored(&f.chain)
	}
	from, to, err := span(&f.chain, req.First, req.Count)
	if err != nil {
		return nil, err
	}
	sizes, err := f.layOut(c, &req, from, to)
	if err != nil {
		return nil, err
	}
	if sizes, f.cut, err = c.session.slotsThatFit(sizes, req.Flags); err != nil {
		return nil, err
	}
	_, fills := c.session.counts()
	if err := roomFor(fills, "fills"); err != nil {
		return nil, err
	}
	f.id, f.said, f.blind = c.server.ids.Add(1), c.prompts.find(&f.chain), slices.ContainsFunc(f.spaces, c.rights.blind)
	f.policy = c.rights.policy
	// A goroutine, and a wake-up of its thread, cost more than all the rest.
	patience := tier.AtOnce
	if req.Deadline.Or(0) > 0 {
		patience = tier.Try
	}
	reply, err := f.open(c.session.ctx, sizes, req.Sums, req.Flags, store.Reservation{Patience: patience})
	if !errors.Is(err, tier.ErrMustWait) {
		return reply, err
	}
	// The body is not the request's any more then.
	sums, deadline, flags := slices.Clone(req.Sums), req.Deadline, req.Flags
	return c.asyncReply(h, func(ctx context.Context) (wire.Message, error) {
		limited, cancel := within(ctx, deadline)
		defer cancel()
		return f.open(limited, sizes, sums, flags, store.Reservation{Patience: tier.Wait})
	})
}

// slotsThatFit cuts a reservation to what the largest reply has room for.
func (c *session) slotsThatFit(sizes []uint32, flags uint8) (fit []uint32, cut bool, err error) {
	most := c.mostResults() - 4*wire.MaxSums/resultBytes // which may all differ
	switch {
	case len(sizes) <= most:
		return sizes, false, nil
	case flags&wire.ReserveAllOrNothing != 0:
		return nil, false, tooLarge(int64(most), "the largest reply that was agreed to has room for %d slots, not for %d", most, len(sizes))
	}
	return sizes[:most], true, nil
}

// resultBytes is what a slot, or a result, has in a reply.
const resultBytes = 16

// mostResults is how many results, or slots, the largest reply has room for.
func (c *session) mostResults() int { return (c.maxReply - replyBytes) / resultBytes }

// resultsFit is an error if the client would not take a reply with n results.
func (c *session) resultsFit(n int) error {
	if most := c.mostResults(); n > most {
		return tooLarge(int64(most), "the largest reply that was agreed to has room for the results of %d chunks, not of %d", most, n)
	}
	return nil
}

// open takes room, waiting as want says, and makes the fill known. A fill that must wait is
// as it was.
func (f *fill) open(ctx context.Context, sizes []uint32, sums wire.Sums, flags uint8, want store.Reservation) (wire.Message, error) {
	if err := f.session.account.Charge(f.cost); err != nil {
		return nil, err
	}
	opened := false
	defer func() {
		if !opened {
			f.session.account.Release(f.cost)
		}
	}()
	err := f.grant(ctx, sizes, flags, want)
	if len(f.mu.slots) == 0 && err != nil {
		return nil, err
	}
	differ := f.compare(sizes, sums)
	reply := &wire.ReserveReply{Slots: f.describe(), Differ: differ}
	if reply.Code, _ = endOf(err); reply.Code == wire.CodeOK && f.cut {
		reply.Code = wire.CodeTooLarge
	}
	if f.mu.live == 0 { // nothing to commit, and no fill
		return reply, nil
	}
	if err := f.session.adopt(f); err != nil {
		f.abort(f.mu.slots)
		return nil, err
	}
	opened, reply.Fill = true, f.id
	if c := f.session; c.server.settings().Access != f.policy { // replaced meanwhile
		f.revokeIfDenied()
	}
	return reply, nil
}

// adopt makes a fill one of the connection's, and starts its age.
func (c *session) adopt(f *fill) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.closed {
		return tier.ErrClosed
	}
	if err := roomFor(len(c.mu.fills), "fills"); err != nil {
		return err
	}
	if err := c.tenant.roomForJobs(c.server.o.Limits.UIDJobs); err != nil {
		return err
	}
	f.mu.until = time.Now().Add(c.leaseAge)
	f.expiry = time.AfterFunc(c.leaseAge, func() { c.whileOpen(f.expire) })
	c.mu.fills[f.id] = f
	c.tenant.jobs.Add(1)
	return nil
}

// grant takes room for the longest leading run that fits, or for all.
func (f *fill) grant(ctx context.Context, sizes []uint32, flags uint8, want store.Reservation) error {
	c := f.session
	grants := make([]store.Grant, len(sizes))
	want.Owner, want.Force, want.Free = c.owner, f.said.force, flags&wire.ReserveNoEvict != 0
	n, err := f.ask(ctx, want, sizes, grants)
	if errors.Is(err, tier.ErrMustWait) { // what exists is asked for again
		return err
	}
	for i, g := range grants[:n] {
		s := slot{status: g.Status, ref: g.Ref}
		if g.Status == store.Granted {
			off, ok := c.staging.alloc(sizes[i])
			if !ok {
				err = fmt.Errorf("reserve: the staging window is full; commit or abort something, or ask for a larger one in hello: %w", tier.ErrOverBudget)
				abortGrants(c.server.o.Store, grants[i:n])
				break
			}
			s.window = off
			f.mu.live++
		}
		f.mu.slots = append(f.mu.slots, s)
	}
	if err != nil && flags&wire.ReserveAllOrNothing != 0 {
		f.mu.live = 0
		f.abort(f.mu.slots)
		f.mu.slots = nil
	}
	return err
}

func abortGrants(s *store.Store, grants []store.Grant) {
	for _, g := range grants {
		if g.Ref.Valid() {
			s.Filler.Abort([]tier.Ref{g.Ref})
		}
	}
}

// compare finds out how long the chunks are that exist already, and which of
// them are not what the client would have stored: other sums than those it
// gave, or another length. It returns the slots of other sums.
func (f *fill) compare(sizes []uint32, sums wire.Sums) wire.U32s {
	if f.blind {
		return nil
	}
	ours := make(map[uint32]uint64, sums.Len())
	for i := range sums.Len() {
		s := sums.At(i)
		ours[s.Slot] = s.Sum
	}
	var differ []uint32
	for from := 0; from < len(f.mu.slots); {
		r := f.runAt(from, len(f.mu.slots))
		differ = f.compareRun(&r, sizes, ours, differ)
		from += r.n
	}
	return wire.ViewU32s(differ)
}

// compareRun is compare for the slots of a run. It adds to differ.
func (f *fill) compareRun(r *run, sizes []uint32, ours map[uint32]uint64, differ []uint32) []uint32 {
	c, chain, first, from := f.session, r.chain, r.chunk, r.slot
	// At once as far as DRAM has them: each by itself would be a walk to the root.
	held := make([]tier.Ref, r.n)
	n, _ := c.server.o.Store.Leases.Hold(c.owner, ledger.IO, chain, first, first+len(held), held)
	defer c.server.o.Store.Leases.Release(c.owner, ledger.IO, held[:n])
	for i := range held {
		s := &f.mu.slots[from+i]
		if s.status != store.Exists {
			continue
		}
		sum, size, known := uint64(0), uint32(0), i < n
		if known {
			sum, size = held[i].Block.Sum(), uint32(held[i].Block.Len())
		} else if sum, size, known = c.server.o.Store.Leases.Sum(c.owner, chain, first+i); !known {
			continue
		}
		s.there = size
		if own, ok := ours[uint32(from+i)]; ok && own != sum {
			differ = append(differ, uint32(from+i))
			logConflict(c, chain, first+i, "checksums compared")
		} else if size != sizes[from+i] {
			logConflict(c, chain, first+i, "another length")
		}
	}
	return differ
}

// grantCodes are what a slot's grant is called.
var grantCodes = [...]wire.Code{store.Granted: wire.CodeOK, store.Exists: wire.CodeExists, store.Pending: wire.CodePending, store.Unwanted: wire.CodeDeclined}

// largestSlot is how many bytes a slot may have on this connection.
func (c *session) largestSlot() int64 {
	return min(c.server.maxPayload, c.staging.bytes())
}

// sizes returns one size a chunk.
func (c *reader) sizes(l wire.U32s, n int, limit int64) ([]uint32, error) {
	if l.Len() != 1 && l.Len() != n {
		return nil, refuse(wire.CodeBadRequest, "%d sizes for %d chunks; give one for all, or one for each", l.Len(), n)
	}
	out := make([]uint32, n)
	for i := range out {
		if out[i] = l.At(min(i, l.Len()-1)); int64(out[i]) > limit {
			return nil, tooLarge(limit, "chunk %d has %d bytes, the limit is %d", i, out[i], limit)
		}
		c.payload = out[i]
	}
	return out, nil
}

// describe tells the client where to put what.
func (f *fill) describe() wire.Slots {
	slots := make(wire.Slots, 0, 16*len(f.mu.slots))
	for _, s := range f.mu.slots {
		w := wire.Slot{Code: grantCodes[s.status], Length: s.there}
		if s.status == store.Granted {
			w.Length, w.Offset = uint32(s.ref.Block.Len()), uint64(s.window)
		}
		slots = slots.Add(w)
	}
	return slots
}
