package replay

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/key"
)

// Group is one KV cache group of a hybrid model: each block of the trace has a payload
// of Bytes in it. The first is full.
type Group struct {
	Kind   client.GroupKind
	Tokens int // of a window and a local group
	Bytes  int
}

// groupPart is how many blocks of a prompt are stored at a time.
const groupPart = 64

// groupPlayer plays prompts of a hybrid model, as [Player] does those of others: all groups
// with one request, and of windows and states what the daemon finds worth storing.
type groupPlayer struct {
	client   *client.Client
	groups   []client.Group
	spaces   []key.SpaceID // of each group
	bytes    []uint32      // of a payload of each
	policy   client.WaitPolicy
	deadline time.Duration
}

// newGroupPlayer opens a space for each group; the first is the client's own.
func newGroupPlayer(ctx context.Context, c *client.Client, o *Options) (*groupPlayer, error) {
	p := &groupPlayer{client: c, policy: o.Policy, deadline: o.Deadline}
	for i, g := range o.Groups {
		s := o.Space()
		if i > 0 {
			s.Group = fmt.Sprintf("%d of %d bytes", i, g.Bytes)
		}
		id, err := s.ID()
		if err != nil {
			return nil, err
		}
		space, err := c.OpenSpace(ctx, s)
		if err != nil {
			return nil, err
		}
		p.groups = append(p.groups, client.Group{Space: space, Kind: g.Kind, Tokens: g.Tokens})
		p.spaces, p.bytes = append(p.spaces, id), append(p.bytes, uint32(g.Bytes))
	}
	return p, nil
}

// Play is [Player.Play]. Nothing counts as a hit unless all that the usable prefix needs
// has the right bytes.
func (p *groupPlayer) Play(ctx context.Context, prompt Prompt) (Outcome, error) {
	o := Outcome{Tokens: prompt.Tokens, Chunks: prompt.Chain.Len()}
	if o.Chunks == 0 {
		return o, nil
	}
	start := time.Now()
	job, err := p.client.Prefetch(ctx, prompt.Client, client.PrefetchOptions{Policy: p.policy, Deadline: p.deadline, Groups: p.groups})
	o.Lookup = time.Since(start)
	if err != nil {
		return o, err
	}
	m := job.Match()
	o.Matched = m.Total
	for g, need := range m.Grouped.Needs {
		o.NeededBytes += int64(need.Chunks) * int64(p.bytes[g])
		o.NeededBelow += int64(need.Chunks-need.Tiers[0]) * int64(p.bytes[g])
	}
	state, err := job.Wait(ctx, client.All)
	o.Ready = time.Since(start)
	o.Late = p.deadline > 0 && o.Ready > p.deadline+lateBy
	if err != nil {
		return o, err
	}
	o.Hit, o.Tiers, o.Reason = state.Ready, state.Tiers, state.Reason
	if err := p.verify(job, prompt.Chain, &o); err != nil {
		return o, err
	}
	if err := p.store(ctx, job, prompt.Chain, &o); err != nil {
		return o, err
	}
	switch err := job.Release(ctx); {
	case errors.Is(err, client.ErrRevoked):
		o.revoke()
	case err != nil:
		return o, err
	}
	return o, nil
}

// verify compares every byte of what the usable prefix needs.
func (p *groupPlayer) verify(job *client.Job, chain *key.Chain, o *Outcome) error {
	for g, need := range job.Needs() {
		for i := need.First; i < need.First+need.Chunks; i++ {
			b, err := job.Piece(g, 0, i)
			if errors.Is(err, client.ErrRevoked) {
				return nil // Release will say so
			}
			if err != nil {
				return err
			}
			k := key.Key{Space: p.spaces[g], Hash: chain.Hashes[i]}
			off := Verify(b, k)
			if off < 0 && len(b) != int(p.bytes[g]) {
				off = len(b)
			}
			if off >= 0 {
				o.Mismatches = append(o.Mismatches, Mismatch{Key: k.String(), Offset: off, Tier: foundIn(&o.Tiers)})
				continue
			}
			o.ReadBytes += int64(len(b))
		}
	}
	if len(o.Mismatches) > 0 {
		o.Hit = client.Count{}
	}
	return nil
}

// store offers all of the prompt, some blocks at a time, and again as long as that finds
// room for more of them. Blocks that exist cost no bytes.
func (p *groupPlayer) store(ctx context.Context, job *client.Job, chain *key.Chain, o *Outcome) error {
	for first := 0; first < chain.Len(); {
		n := min(groupPart, chain.Len()-first)
		fill, err := p.client.Reserve(ctx, job.Prompt(), client.ReserveOptions{
			First: first, Count: n, Sizes: p.bytes, Groups: p.groups, Wait: storeWait,
		})
		if noRoom(err) {
			o.Refused += chain.Len() - first
			return nil
		}
		if err != nil {
			return err
		}
		granted, err := p.fill(ctx, fill, chain, first, n, o)
		if err != nil {
			return err
		}
		switch short := n*len(p.groups) - fill.Len(); {
		case short == 0:
			first += n
		case granted == 0:
			o.Refused += short
			first += n
		}
	}
	return nil
}

// fill makes the payloads of the granted slots, of n chunks of each group, and commits
// them; how many there are.
func (p *groupPlayer) fill(ctx context.Context, fill *client.Fill, chain *key.Chain, first, n int, o *Outcome) (granted int, err error) {
	for i := range fill.Len() {
		switch fill.Status(i) {
		case client.Granted:
			granted++
			Fill(fill.Bytes(i), key.Key{Space: p.spaces[i/n], Hash: chain.Hashes[first+i%n]})
		case client.Pending:
			o.Pending++
		}
	}
	if granted == 0 {
		return 0, nil
	}
	results, err := fill.Commit(ctx)
	if err != nil {
		return 0, err
	}
	for i, r := range results {
		if fill.Status(i) == client.Granted {
			if err := o.count(r, int64(p.bytes[i/n])); err != nil {
				return 0, fmt.Errorf("commit of %s: %w", key.Key{Space: p.spaces[i/n], Hash: chain.Hashes[first+i%n]}, err)
			}
		}
	}
	return granted, nil
}
