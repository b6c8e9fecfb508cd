package server

import (
	"fmt"

	"github.com/kvstored/kvstored/internal/hint"
	"github.com/kvstored/kvstored/internal/stack"
	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

// handleRead counts the reads by the directory that a client tells of. Chunks that are not
// known count nothing, and so do the chains of a request behind one that is refused.
func handleRead(c *reader, h wire.Header, body []byte) error {
	var req wire.ReadRequest
	if err := req.Decode(body); err != nil {
		return err
	}
	for sent := range req.Reads.All() {
		chain := c.scratch(sent)
		if err := c.chain(chain, sent); err != nil {
			return err
		}
		if err := readBy(c, chain, sent.Form != wire.FormRef); err != nil {
			return err
		}
		if c.pause(); c.ctx.Err() != nil {
			return fmt.Errorf("read: %w", c.ctx.Err())
		}
	}
	c.reply(h, &wire.EmptyReply{})
	return nil
}

// readBy keeps the books of a prefetch that found chain in DRAM and was released, as far as
// its chunks are known. A prompt that is new to the connection is observed.
func readBy(c *reader, chain *key.Chain, observe bool) error {
	s := c.server
	m, err := s.o.Stack.Match(c.turning, chain, tier.All)
	if err != nil {
		return err
	}
	if observe {
		c.prompts.observe(chain, nil, false, hint.Advice{})
	}
	from, to := chain.Skip, chain.Skip+m.Chunks
	known := *chain
	known.Hashes, known.Tokens = chain.Hashes[:to], chain.Tokens[:to]
	first, bytes := s.o.Stack.Read(c.turning, &known, from, to)
	s.o.Stack.Passed(chain, from, to, first)
	if c.prompts.find(chain).done {
		s.o.Stack.MarkCold(chain)
	}

	in := [tier.Places]stack.Count{tier.CPU: m.Count}
	s.count.asked(&known, &m)
	s.count.hit(in)
	of := s.model(chain.Space)
	of.asked.Add(m.Tokens)
	of.had(&in, bytes)
	return nil
}
