package server

import (
	"github.com/kvstored/kvstored/internal/hint"
	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/key"
)

// handleHint takes what a client says of a prompt without asking for it.
func handleHint(c *reader, h wire.Header, body []byte) error {
	var req wire.HintRequest
	if err := req.Decode(body); err != nil {
		return err
	}
	chains, err := c.hinted(&req)
	if err != nil {
		return err
	}
	c.prompts.advise(chains, hint.Read(req.Configs))
	c.reply(h, &wire.HintReply{})
	return nil
}

// hinted is the prompt that a hint is about, in each of its spaces.
func (c *reader) hinted(req *wire.HintRequest) ([]key.Chain, error) {
	if req.LookupID != "" {
		return c.named(req.LookupID)
	}
	var chain key.Chain
	if err := c.chain(&chain, &req.Chain); err != nil {
		return nil, err
	}
	return c.ranked(&chain, req.Ranks)
}

// named is the prompt that this user asked for under a lookup id.
func (c *reader) named(lookupID string) ([]key.Chain, error) {
	chains := c.server.recent.get(asked{c.uid, lookupID}, c.judged.policy)
	if chains == nil {
		return nil, refuse(wire.CodeNotFound, "nothing was prefetched as %.80q, or too long ago; send the prompt", lookupID)
	}
	return chains, nil
}
