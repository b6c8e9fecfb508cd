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
	a, w := hint.Read(req.Configs)
	chains, err := hinted(c, &req, a.Session)
	if err != nil {
		return err
	}
	c.prompts.advise(chains, a)
	reply := wire.HintReply{Retained: c.carryOut(chains, &a, &w, true), Faults: w.Faults}
	c.reply(h, &reply)
	return nil
}

// hinted is the prompt that a hint is about, in each of its spaces.
func hinted(c *reader, req *wire.HintRequest, session string) ([]key.Chain, error) {
	switch {
	case req.LookupID != "":
		return named(c, req.LookupID)
	case req.Chain.Form == wire.FormNone:
		return lastOf(c, req.Chain.Space, session)
	}
	var chain key.Chain
	if err := c.chain(&chain, &req.Chain); err != nil {
		return nil, err
	}
	return c.ranked(&chain, req.Ranks)
}

// named is the prompt that this user asked for under a lookup id.
func named(c *reader, lookupID string) ([]key.Chain, error) {
	chains := c.server.recent.get(asked{c.uid, lookupID}, c.judged.policy)
	if chains == nil {
		return nil, refuse(wire.CodeNotFound, "nothing was prefetched as %.80q, or too long ago; send the prompt", lookupID)
	}
	return chains, nil
}

// lastOf is the last prompt of a session of this user in a space.
func lastOf(c *reader, handle uint32, session string) ([]key.Chain, error) {
	if session == "" {
		return nil, refuse(wire.CodeBadRequest, "neither a chain, nor a lookup id, nor a session is given")
	}
	sp, err := c.space(handle)
	if err != nil {
		return nil, err
	}
	chains := c.server.wishes.sessions.get(asked{c.uid, sessionName(sp.info.ID, session)}, c.judged.policy)
	if chains == nil {
		return nil, refuse(wire.CodeNotFound, "nothing is known of session %.80q in this space, or not any more; send the prompt", session)
	}
	return chains, nil
}
