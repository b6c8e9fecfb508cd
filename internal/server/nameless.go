package server

import (
	"errors"

	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/internal/stack"
	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

// reserveNameless makes a fill whose slots are room in the window only: they get keys
// when they are committed, and memory of DRAM no sooner.
func reserveNameless(c *reader, h wire.Header, f *fill, req *wire.ReserveRequest) error {
	if c.staging == nil {
		return refuse(wire.CodeUnsupported, "slots without keys need a staging window; ask for one in hello")
	}
	sp, err := c.space(req.Chain.Space)
	if err != nil {
		return err
	}
	n := int(max(req.Count, 1))
	if req.Count == 0 {
		n = req.Sizes.Len()
	}
	if req.First != 0 || n == 0 || n > key.MaxChunks || req.Sums.Len() > 0 {
		return refuse(wire.CodeBadRequest, "%d slots without keys from %d on, and %d checksums: send first 0, 1 to %d slots and no checksums", n, req.First, req.Sums.Len(), key.MaxChunks)
	}
	f.cost = liveBytes + liveChunkBytes*int64(n)
	if f.writers > 1 {
		f.cost += keyBytes * int64(n)
	}
	if err := c.account.Charge(f.cost); err != nil {
		return err
	}
	sizes, err := c.sizes(req.Sizes, n, c.largestSlot())
	if err != nil {
		c.account.Release(f.cost)
		return err
	}
	if sizes, f.cut, err = c.slotsThatFit(sizes, req.Flags); err != nil {
		c.account.Release(f.cost)
		return err
	}
	f.id, f.chain.Space, f.policy = c.server.ids.Add(1), sp.info.ID, c.judged.policy
	reply, err := f.openNameless(sizes, req.Flags)
	if err != nil {
		c.account.Release(f.cost)
		return err
	}
	c.reply(h, reply)
	c.sendReplies() // commits of other slots may follow; the client can fill these meanwhile
	return nil
}

// openNameless takes room for the slots, as many as fit, and makes the fill known.
func (f *fill) openNameless(sizes []uint32, flags uint8) (*wire.ReserveReply, error) {
	c, short := f.session, wire.CodeOK
	if f.cut {
		short = wire.CodeTooLarge
	}
	for _, size := range sizes {
		off, ok := c.staging.alloc(size)
		if !ok {
			short = wire.CodeOverBudget
			break
		}
		f.mu.slots = append(f.mu.slots, slot{status: stack.Granted, window: off, room: int(size)})
		f.mu.live++
	}
	reply := &wire.ReserveReply{Fill: f.id, Code: short, Slots: f.describe()}
	if short == wire.CodeOverBudget && (f.mu.live == 0 || flags&wire.ReserveAllOrNothing != 0) {
		f.abort(f.mu.slots)
		return nil, refuse(wire.CodeOverBudget, "the staging window is full; commit or abort something, or ask for a larger one in hello")
	}
	if err := c.adopt(f); err != nil {
		f.abort(f.mu.slots)
		return nil, err
	}
	if c.server.settings().Access != f.policy { // replaced meanwhile
		f.revokeIfDenied()
	}
	if flags&wire.ReserveShared != 0 {
		c.server.shared.addFill(f)
	}
	return reply, nil
}

// commitNameless gives slots without keys those of a chain, and stores them.
func commitNameless(c *reader, h wire.Header, f *fill, req *wire.FillRequest, from, to int) error {
	if req.Chain == nil || f.chain.Len() > 0 {
		return refuse(wire.CodeBadRequest, "fill %d: a chain names the slots that were reserved without keys, and only these", f.id)
	}
	var chain key.Chain
	if err := c.chain(&chain, req.Chain); err != nil {
		return err
	}
	if have := chain.Len() - chain.Skip; have < to-from {
		return refuse(wire.CodeBadRequest, "fill %d: a chain of %d chunks names %d slots", f.id, have, to-from)
	}
	if c.owner == ledger.Daemon {
		c.owner = c.server.o.Stack.NewOwner()
	}
	var results wire.Results
	var err error
	f.whileOpen(c.session, &err, func() { results, err = storeNameless(c, f, &chain, from, to) })
	f.forgetIfDone()
	if err != nil {
		return err
	}
	c.reply(h, &wire.StoreReply{Results: results})
	return nil
}

// storeNameless stores slots as the chunks of chain that follow the skipped ones.
func storeNameless(c *reader, f *fill, chain *key.Chain, from, to int) (wire.Results, error) {
	taken, err := f.take(from, to, &ack{by: c.id, chain: chain})
	if err != nil {
		return nil, err
	}
	defer f.freeWindow(taken) // all were stored, or are not wanted
	if told := c.server.o.Stored; told != nil {
		told(chain)
	}
	said := c.prompts.find(chain)
	results := make(wire.Results, 0, 16*len(taken))
	for i, s := range taken {
		stored := wire.Stored{Code: wire.CodeNotReserved}
		switch {
		case s.waits:
			stored.Code = wire.CodePending
		case s.room > 0:
			stored, err = storeSlot(c, f, s, chain, chain.Skip+i, &said)
			if err != nil && !errors.Is(err, stack.ErrNotAdmitted) {
				return nil, err
			}
		}
		results = results.Add(stored)
	}
	first, end := chain.Skip, chain.Skip+len(taken)
	c.server.o.Stack.Passed(chain, first, end, int64(taken[0].room))
	c.server.wishes.stored(c.uid, &said, chain, first, end)
	if said.done {
		c.server.o.Stack.MarkCold(chain)
	} else {
		c.server.next.add(chain)
	}
	return results, nil
}

func (f *fill) freeWindow(taken []slot) {
	for _, s := range taken {
		if s.room > 0 {
			f.session.staging.free(s.window, s.room)
		}
	}
}

// storeSlot is putOne for a payload in the window of the fill.
func storeSlot(c *reader, f *fill, s slot, chain *key.Chain, i int, said *promptRecord) (wire.Stored, error) {
	var grants [1]stack.Grant
	store := c.server.o.Stack
	want := stack.Store{Owner: c.owner, Force: said.force}
	if _, err := store.ReserveFor(c.ctx, want, chain, i, []uint32{uint32(s.room)}, grants[:]); err != nil {
		return notStored(err)
	}
	switch grants[0].Status {
	case stack.Pending:
		return wire.Stored{Code: wire.CodePending}, nil
	case stack.Exists:
		return wire.Stored{Code: wire.CodeExists}, nil // what is in the window is not hashed
	}
	ref := grants[0].Ref
	sum, err := ref.Block.WriteFrom(f.session.staging.window, s.window, arena.Look{})
	if err != nil {
		store.Abort([]tier.Ref{ref})
		return wire.Stored{}, err
	}
	ref.Block.SealSum(sum)
	var stored [1]bool
	store.CommitEach(chain, i, []tier.Ref{ref}, said.allows(f.maxAge), stored[:])
	if !stored[0] {
		return compareStored(c.session, chain, i, sum, c.blind(chain.Space)), nil
	}
	c.server.count.stored(1, uint64(s.room))
	c.server.model(chain.Space).storedBytes.Add(uint64(s.room))
	return wire.Stored{Code: wire.CodeOK, Sum: sum}, nil
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
