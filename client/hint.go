package client

import (
	"context"

	"github.com/kvstored/kvstored/internal/wire"
)

// Fault is one of the request configs, or one of the actions in their kv_hints, that
// did not count, and why. All others did.
type Fault = wire.Fault

// NoAction as the action of a Fault says that a config is at fault.
const NoAction = wire.NoAction

// Hinted is what became of a hint.
type Hinted struct {
	Retained Count // chunks that the claims of the hint cover now
	Faults   []Fault
}

// Hint says something of the future of a prompt, in request_configs as those of
// PrefetchOptions, without asking for the prompt: when a request of the engine ends or
// pauses. A daemon that is older refuses it, ErrUnknownOp: do without. It may be
// called concurrently.
func (c *Client) Hint(ctx context.Context, p Prompt, configs map[string]string) (Hinted, error) {
	ch, err := c.chain(wire.OpHint, &p)
	if err != nil {
		return Hinted{}, err
	}
	return c.hint(ctx, &wire.HintRequest{Chain: ch, Configs: pairs(configs)})
}

// HintNamed is Hint for the prompt of an earlier Prefetch, of this user, by its
// LookupID. ErrNotFound says that the daemon does not know it any more.
func (c *Client) HintNamed(ctx context.Context, lookupID string, configs map[string]string) (Hinted, error) {
	return c.hint(ctx, &wire.HintRequest{Chain: wire.Chain{Form: wire.FormNone}, LookupID: lookupID, Configs: pairs(configs)})
}

// HintSession is Hint for the last prompt of a session in a space, whose name the
// configs have. ErrNotFound says that the daemon knows nothing of it.
func (c *Client) HintSession(ctx context.Context, s *Space, configs map[string]string) (Hinted, error) {
	return c.hint(ctx, &wire.HintRequest{Chain: wire.Chain{Form: wire.FormNone, Space: s.info.Handle}, Configs: pairs(configs)})
}

func (c *Client) hint(ctx context.Context, req *wire.HintRequest) (Hinted, error) {
	var m wire.HintReply
	err := c.link.do(ctx, wire.OpHint, req, m.Decode, nil)
	return Hinted{m.Retained, m.Faults}, err
}

func pairs(configs map[string]string) (l wire.Pairs) {
	for name, value := range configs {
		l = l.Add(name, value)
	}
	return l
}
