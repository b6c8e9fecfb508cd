package server

import (
	"time"

	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/internal/stack"
	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

func handlePin(c *reader, h wire.Header, body []byte) error {
	var req wire.PinRequest
	if err := req.Decode(body); err != nil {
		return err
	}
	if req.LookupID == "" {
		return refuse(wire.CodeBadRequest, "a pin needs a lookup id, or nobody can end it")
	}
	var chain key.Chain
	if err := c.chain(&chain, &req.Chain); err != nil {
		return err
	}
	limit := c.server.settings().PinMaxAge
	if want := time.Duration(req.MaxAgeMillis) * time.Millisecond; want > 0 {
		limit = min(limit, want)
	}
	pinned, err := addPin(c.session, &chain, chain.Skip, chain.Len(), req.LookupID, limit)
	if err != nil && pinned.Chunks == 0 {
		return err
	}
	c.reply(h, &wire.PinReply{Pinned: countOf(pinned)})
	return nil
}

func handleUnpin(c *reader, h wire.Header, body []byte) error {
	var req wire.UnpinRequest
	if err := req.Decode(body); err != nil {
		return err
	}
	n := c.server.pins.end(req.LookupID, c.endsPin)
	c.reply(h, &wire.ChunksReply{Chunks: uint64(n)})
	return nil
}

// addPin pins the leading run in DRAM of chunks from..to, as far as budgets
// allow.
func addPin(c *session, chain *key.Chain, from, to int, name string, age time.Duration) (stack.Count, error) {
	refs := make([]tier.Ref, to-from)
	n, err := c.server.o.Stack.Hold(c.owner, ledger.Pin, chain, from, to, refs)
	var pinned stack.Count
	if n == 0 {
		return pinned, err
	}
	if err := c.server.pins.add(c, chain.Space, name, refs[:n], age); err != nil {
		return pinned, err
	}
	for _, t := range chain.Tokens[from : from+n] {
		pinned.Chunks++
		pinned.Tokens += uint64(t)
	}
	return pinned, err
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
