package server

import (
	"time"

	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/internal/server/hint"
	"github.com/kvstored/kvstored/internal/stack"
	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

// A pin is a hard claim: its chunks in DRAM stay there. It ends with its connection, or at
// its end. Its name is good on every connection, with access rules on every connection of its
// user.

func handlePin(c *reader, h wire.Header, req wire.PinRequest) (wire.Message, error) {
	if req.LookupID == "" {
		return nil, refuse(wire.CodeBadRequest, "a pin needs a lookup id, or nobody can end it")
	}
	var chain key.Chain
	if err := c.chain(&chain, &req.Chain); err != nil {
		return nil, err
	}
	limit := c.server.settings().PinMaxAge
	if want := time.Duration(req.MaxAgeMillis) * time.Millisecond; want > 0 {
		limit = min(limit, want)
	}
	pinned, err := addPin(c.session, &chain, chain.Skip, chain.Len(), req.LookupID, limit)
	if err != nil && pinned.Chunks == 0 {
		return nil, err
	}
	return &wire.PinReply{Pinned: countOf(pinned)}, nil
}

func handleUnpin(c *reader, h wire.Header, req wire.UnpinRequest) (wire.Message, error) {
	n := c.server.RevokePins(func(by *hint.Claimant) bool { return by.Name == req.LookupID && c.endsPin(by) })
	return &wire.ChunksReply{Chunks: uint64(n)}, nil
}

// addPin pins the leading run in DRAM of chunks from..to, as far as budgets
// allow.
func addPin(c *session, chain *key.Chain, from, to int, name string, age time.Duration) (pinned stack.Count, err error) {
	refs := make([]tier.Ref, to-from)
	n, err := c.server.o.Stack.Hold(c.owner, ledger.Pin, chain, from, to, refs)
	if n == 0 {
		return pinned, err
	}
	by := hint.Claimant{UID: c.uid, Space: chain.Space, Name: name, Connection: c.id}
	c.pins.Store(true)
	n, over := c.server.wishes.claims.Pin(by, c.owner, chain.Hashes[from:from+n], refs[:n], age)
	if over != nil {
		err = refuse(wire.CodeOverBudget, "pin: %v", over)
	}
	if c.isClosed() {
		c.unpin()
		return pinned, tier.ErrClosed
	}
	for _, t := range chain.Tokens[from : from+n] {
		pinned.Chunks++
		pinned.Tokens += uint64(t)
	}
	return pinned, err
}

// unpin ends all pins of a connection, and returns how many chunks they protected.
func (c *session) unpin() int {
	if !c.pins.Load() {
		return 0
	}
	return c.server.wishes.claims.End(c.id, func(*hint.Claimant) bool { return true })
}

// pinReady pins chunks from..to of a job's prefix, if it is to be pinned.
func (j *job) pinReady(from, to int) {
	for r := range j.chains {
		j.pinChunks(&j.chains[r], j.skip()+from, j.skip()+to)
	}
}

// pinChunks pins chunks from..to of a chain, if the job is to be pinned. The job holds
// them, and does not show them before it has returned: with the end of a job in hand its
// client may end the pin.
func (j *job) pinChunks(chain *key.Chain, from, to int) {
	if j.pin == "" || from == to || !j.beginWait() {
		return
	}
	defer j.waits.Done()
	c := j.session
	if _, err := addPin(c, chain, from, to, j.pin, c.server.settings().PinMaxAge); err != nil {
		c.log.Debug().Err(err).Str("lookup_id", j.pin).Msg("pinned less than was matched")
	}
}
