package server

import (
	"sync"
	"time"

	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

// pinName is the lookup id a job's prefix is to be pinned under.
type pinName struct{ id string }

// pin is chunks protected under a name until unpin, disconnect or expiry.
type pin struct {
	session *session
	expiry  *time.Timer
	mu      struct {
		sync.Mutex
		refs []tier.Ref
	}
}

// addPin pins the leading run in DRAM of chunks from..to, as far as budgets
// allow. A name may be given more than once; unpin ends all.
func (c *session) addPin(chain *key.Chain, from, to int, name string, limit time.Duration) (tier.Count, error) {
	refs := make([]tier.Ref, to-from)
	n, err := c.server.o.Stack.Hold(c.owner, ledger.Pin, chain, from, to, refs)
	var pinned tier.Count
	for _, t := range chain.Tokens[from : from+n] {
		pinned.Chunks++
		pinned.Tokens += uint64(t)
	}
	if n == 0 {
		return pinned, err
	}
	p := &pin{session: c}
	p.mu.refs = refs[:n]
	p.expiry = time.AfterFunc(limit, func() {
		c.forgetPin(name, p)
		p.release()
	})
	c.mu.Lock()
	gone := c.mu.pins == nil
	if !gone {
		c.mu.pins[name] = append(c.mu.pins[name], p)
	}
	c.mu.Unlock()
	if gone {
		p.release()
	}
	return pinned, err
}

// pinReady pins the first n chunks of a job's prefix.
func (j *job) pinReady(n int) {
	c := j.session
	if _, err := c.addPin(&j.chain, j.chain.Skip, j.chain.Skip+n, j.pin.id, c.server.o.PinMaxAge); err != nil {
		c.log.Debug().Err(err).Str("lookup_id", j.pin.id).Msg("pinned less than was matched")
	}
}

func (c *session) forgetPin(name string, p *pin) {
	c.mu.Lock()
	defer c.mu.Unlock()
	ps := c.mu.pins[name]
	for i := range ps {
		if ps[i] == p {
			c.mu.pins[name] = append(ps[:i], ps[i+1:]...)
			break
		}
	}
	if len(c.mu.pins[name]) == 0 {
		delete(c.mu.pins, name)
	}
}

// release gives the chunks back, once, and returns how many.
func (p *pin) release() int {
	p.expiry.Stop()
	p.mu.Lock()
	refs := p.mu.refs
	p.mu.refs = nil
	p.mu.Unlock()
	p.session.server.o.Stack.Release(p.session.owner, ledger.Pin, refs)
	return len(refs)
}

func (c *session) pin(h wire.Header, body []byte) error {
	var req wire.PinRequest
	if err := req.Decode(body); err != nil {
		return err
	}
	var chain key.Chain
	if err := c.chain(&chain, &req.Chain); err != nil {
		return err
	}
	limit := c.server.o.PinMaxAge
	if want := time.Duration(req.MaxAgeMillis) * time.Millisecond; want > 0 {
		limit = min(limit, want)
	}
	pinned, err := c.addPin(&chain, chain.Skip, chain.Len(), req.LookupID, limit)
	if err != nil && pinned.Chunks == 0 {
		return err
	}
	c.reply(h, &wire.PinReply{Pinned: countOf(pinned)})
	return nil
}

func (c *session) unpin(h wire.Header, body []byte) error {
	var req wire.UnpinRequest
	if err := req.Decode(body); err != nil {
		return err
	}
	c.mu.Lock()
	ps := c.mu.pins[req.LookupID]
	delete(c.mu.pins, req.LookupID)
	c.mu.Unlock()
	n := 0
	for _, p := range ps {
		n += p.release()
	}
	c.reply(h, &wire.ChunksReply{Chunks: uint64(n)})
	return nil
}
