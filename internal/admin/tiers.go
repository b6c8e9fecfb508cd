package admin

import (
	"slices"
	"strconv"
	"strings"

	"github.com/kvstored/kvstored/internal/explain"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/policy"
	"github.com/kvstored/kvstored/tier"
)

func (c *call) policies() *Policies {
	reply := Policies{Tiers: make(map[string]string), Names: policy.All()}
	for p := tier.CPU; p < tier.Places; p++ {
		if name, ok := c.o.Stack.PolicyOf(p); ok {
			reply.Tiers[p.String()] = name
		}
	}
	return &reply
}

func (c *call) setPolicy(q *PolicyRequest) (*Policies, error) {
	p, err := tier.Parse(q.Tier)
	if err != nil {
		return nil, refuse(BadRequest, "%v", err)
	}
	if names := policy.All(); !slices.Contains(names, q.Policy) {
		return nil, refuse(BadRequest, "there is no policy called %.64q", q.Policy).advise("use " + strings.Join(names, ", ") + "; sieve and gdsf are in kvstored-lab only")
	}
	if err := c.o.Stack.SetPolicy(p, q.Policy); err != nil {
		return nil, err
	}
	return c.policies(), nil
}

func (c *call) upload(q *UploadRequest) (*Uploaded, error) {
	if q.DryRun {
		h, err := c.o.Stack.Holdings(c.ctx)
		return &Uploaded{Holdings: &h}, err
	}
	from := uint64(0)
	if q.After != "" {
		var err error
		if from, err = strconv.ParseUint(q.After, 16, 64); err != nil {
			return nil, refuse(BadRequest, "after: %.40q ends no step", q.After).advise("write next of the step before")
		}
	}
	u, err := c.o.Stack.Upload(c.ctx, from)
	reply := Uploaded{Uploaded: u}
	if u.Next != 0 {
		reply.Next = strconv.FormatUint(u.Next, 16)
	}
	return &reply, err
}

func (c *call) forget(q *ForgetRequest) (*Forgotten, error) {
	switch {
	case q.Distrust && len(q.Tiers) == 0:
		return c.trust(q)
	case q.Space != "" && len(q.Tiers) == 0:
		return c.forgetSpace(q)
	}
	if len(q.Tiers) == 0 || q.Space != "" {
		return nil, refuse(BadRequest, "no tiers are named, or a space beside them").advise(`name those to be emptied, such as {"tiers": ["cpu", "disk"]}, or a space`)
	}
	if err := allowed(c.o.Server.Access(), c.uid, everywhere); err != nil {
		return nil, err
	}
	var from tier.Set
	reply, have := &Forgotten{Tiers: make(map[string]uint64)}, c.o.Stack.Stats().Tiers
	for _, name := range q.Tiers {
		p, err := tier.Parse(name)
		if err != nil {
			return nil, refuse(BadRequest, "%v", err)
		}
		t, ok := have[p]
		if !ok {
			return nil, refuse(NotFound, "there is no %s tier", name)
		}
		reply.Tiers[p.String()] = uint64(t.Entries)
		from |= tier.Of(p)
	}
	if q.DryRun {
		for _, n := range reply.Tiers {
			reply.Chunks += n
		}
		return reply, nil
	}
	n, err := c.o.Stack.Clear(c.ctx, from)
	return &Forgotten{Chunks: uint64(n)}, err
}

func (c *call) forgetSpace(q *ForgetRequest) (*Forgotten, error) {
	id, err := c.ownSpace("forget", q.Space)
	if err != nil {
		return nil, err
	}
	p, err := c.o.Stack.Purge(c.ctx, id, q.After, q.DryRun)
	return &Forgotten{Chunks: p.Known, Found: p.Found, Bytes: p.Bytes, Next: p.Next}, err
}

// ownSpace is the id of a space that the user may administer.
func (c *call) ownSpace(do, text string) (key.SpaceID, error) {
	id, err := spaceID("space", text)
	if err != nil {
		return id, err
	}
	switch model, ok := c.o.Server.MayPurge(c.uid, id); {
	case ok:
		return id, nil
	case model == "":
		return id, refuse(Denied, "user %d may not %s a space that is not known here", c.uid, do).advise("have a client open it first, so that its model is known")
	default:
		return id, refuse(Denied, "user %d may not %s a space of model %.80q", c.uid, do, model)
	}
}

// trust ends the distrust of a space, whose chunks are found again.
func (c *call) trust(q *ForgetRequest) (*Forgotten, error) {
	if q.DryRun || q.After != "" {
		return nil, refuse(BadRequest, "distrust is forgotten in one step, and not counted")
	}
	id, err := c.ownSpace("trust", q.Space)
	if err != nil {
		return nil, err
	}
	was, err := c.o.Server.Trust(id)
	if err == nil && !was {
		err = refuse(NotFound, "space %s is not distrusted", q.Space).advise("`kvstored list spaces` says which are")
	}
	return new(Forgotten), err
}

func (c *call) scrub(q *ScrubRequest) (*Scrubbed, error) {
	if q.BytesPerSecond < 0 {
		return nil, refuse(BadRequest, "bytes_per_second: %d is less than 0", q.BytesPerSecond)
	}
	s, err := c.o.Stack.Scrub(c.ctx, q.BytesPerSecond)
	return &s, err
}

// sample is what clients have asked for, for the lab to play.
func (c *call) sample(*None) (*explain.Sample, error) {
	return c.o.Sample.Sample(), nil
}
