package admin

import (
	"slices"
	"strconv"
	"strings"

	"github.com/kvstored/kvstored/policy"
	"github.com/kvstored/kvstored/tier"
)

// place reads the name of a tier.
func place(name string) (tier.Place, error) {
	var names []string
	for p := tier.CPU; p < tier.Places; p++ {
		if p.String() == name {
			return p, nil
		}
		names = append(names, p.String())
	}
	e := refuse(BadRequest, "%.80q is no tier", name)
	e.Do = "write " + strings.Join(names, ", ")
	return 0, e
}

func (c *call) policies(*None) (*Policies, error) {
	reply := Policies{Tiers: make(map[string]string), Names: policy.All()}
	for p := tier.CPU; p < tier.Places; p++ {
		if name, ok := c.o.Stack.PolicyOf(p); ok {
			reply.Tiers[p.String()] = name
		}
	}
	return &reply, nil
}

func (c *call) setPolicy(q *PolicyRequest) (*Policies, error) {
	p, err := place(q.Tier)
	if err != nil {
		return nil, err
	}
	if names := policy.All(); !slices.Contains(names, q.Policy) {
		e := refuse(BadRequest, "there is no policy called %.64q", q.Policy)
		e.Do = "use " + strings.Join(names, ", ") + "; sieve and gdsf are in kvstored-lab only"
		return nil, e
	}
	if err := c.o.Stack.SetPolicy(p, q.Policy); err != nil {
		return nil, err
	}
	return c.policies(nil)
}

func (c *call) holdings(*None) (*Holdings, error) {
	h, err := c.o.Stack.Holdings(c.ctx)
	reply := Holdings{Chunks: h.Chunks, Tiers: make(map[string]uint64), Missing: h.Missing.Chunks, MissingBytes: h.Missing.Bytes, Local: h.Local}
	for p, n := range h.In {
		reply.Tiers[p.String()] = n
	}
	return &reply, err
}

func (c *call) upload(q *UploadRequest) (*Uploaded, error) {
	from := uint64(0)
	if q.After != "" {
		var err error
		if from, err = strconv.ParseUint(q.After, 16, 64); err != nil {
			e := refuse(BadRequest, "after: %.40q ends no step", q.After)
			e.Do = "write next of the step before"
			return nil, e
		}
	}
	u, err := c.o.Stack.Upload(c.ctx, from)
	reply := Uploaded{Chunks: u.Written.Chunks, Bytes: u.Written.Bytes, Present: u.Present, Gone: u.Gone, Failed: u.Failed.Chunks, FailedBytes: u.Failed.Bytes}
	if u.Next != 0 {
		reply.Next = strconv.FormatUint(u.Next, 16)
	}
	return &reply, err
}

func (c *call) clear(q *ClearRequest) (*Chunks, error) {
	if len(q.Tiers) == 0 {
		e := refuse(BadRequest, "no tiers are named")
		e.Do = `name those to be emptied, such as {"tiers": ["cpu", "disk"]}`
		return nil, e
	}
	var from tier.Set
	for _, name := range q.Tiers {
		p, err := place(name)
		if err != nil {
			return nil, err
		}
		from |= tier.Of(p)
	}
	n, err := c.o.Stack.Clear(c.ctx, from)
	return &Chunks{uint64(n)}, err
}

func (c *call) purge(q *PurgeRequest) (*Purged, error) {
	id, err := spaceID("space", q.Space)
	if err != nil {
		return nil, err
	}
	switch model, ok := c.o.Server.MayPurge(c.uid, id); {
	case ok:
	case model == "":
		e := refuse(Denied, "user %d may not purge a space that is not known here", c.uid)
		e.Do = "have a client open it first, so that its model is known"
		return nil, e
	default:
		return nil, refuse(Denied, "user %d may not purge a space of model %.80q", c.uid, model)
	}
	p, err := c.o.Stack.Purge(c.ctx, id, q.After, q.DryRun)
	return &Purged{p.Known, p.Found, p.Bytes, p.Next}, err
}

func (c *call) scrub(q *ScrubRequest) (*Scrubbed, error) {
	if q.BytesPerSecond < 0 {
		return nil, refuse(BadRequest, "bytes_per_second: %d is less than 0", q.BytesPerSecond)
	}
	s, err := c.o.Stack.Scrub(c.ctx, q.BytesPerSecond)
	reply := Scrubbed(s)
	return &reply, err
}

func (c *call) rebuild(*None) (*Rebuilt, error) { return c.rebuilding(true) }

func (c *call) rebuilt(*None) (*Rebuilt, error) { return c.rebuilding(false) }

func (c *call) rebuilding(begin bool) (*Rebuilt, error) {
	r, err := c.o.Stack.Rebuild(c.ctx, begin)
	return &Rebuilt{r.Running, r.Bytes, r.TotalBytes, r.Headers, r.Restored, r.Dropped, r.Resealed, r.Duration.Seconds()}, err
}
