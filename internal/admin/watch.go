package admin

import (
	"encoding/hex"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/kvstored/kvstored/internal/explain"
	"github.com/kvstored/kvstored/internal/human"
	"github.com/kvstored/kvstored/internal/server/hint"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/policy"
	"github.com/kvstored/kvstored/tier"
)

// Clients lists the clients of the protocol, the largest holder first.
type Clients struct {
	Clients []ClientUse `json:"clients"`
	LeftOut int         `json:"left_out"`
}

// LeasesRequest asks for leases and fills, or for those alone that are still loading.
type LeasesRequest struct {
	Loading string `json:"loading,omitempty"` // true or false
}

// Leases lists the leases and fills of clients, most bytes first; of those that load the
// oldest first.
type Leases struct {
	Leases  []Lease `json:"leases"`
	LeftOut int     `json:"left_out"`
	Work    []Work  `json:"work"`
}

// Work is what the daemon does by itself.
type Work struct {
	What string `json:"what"` // recover, rebuild, scrub, write
	Tier string `json:"tier"` // that it is about
	Done uint64 `json:"done"` // of Unit; of a write nothing, as its end moves
	Of   uint64 `json:"of"`   // 0: not known
	Unit string `json:"unit"` // records, bytes, chunks
}

func (c *call) clients(*None) (*Clients, error) {
	list, more := c.o.Server.Clients(maxListed)
	return &Clients{append([]ClientUse{}, list...), more}, nil
}

func (c *call) leases(q *LeasesRequest) (*Leases, error) {
	list, more := c.o.Server.Leases(maxListed, q.Loading == "true")
	return &Leases{append([]Lease{}, list...), more, c.work()}, nil
}

// work lists what the daemon is at by itself, in the order of the tiers.
func (a *API) work() []Work {
	st, out := a.o.Store.Operator.Stats(), []Work{}
	for p := tier.Disk; int(p) < tier.Places; p++ {
		t, ok := st.Tiers[p]
		if !ok {
			continue
		}
		name, n := p.String(), t.Counters
		if n["recovering"] > 0 {
			out = append(out, Work{"recover", name, n["recover_scanned"], 0, "records"})
		}
		if n["rebuild_total_bytes"] > 0 {
			out = append(out, Work{"rebuild", name, n["rebuild_bytes"], n["rebuild_total_bytes"], "bytes"})
		}
		if n["scrub_running"] > 0 {
			out = append(out, Work{"scrub", name, n["scrub_bytes"], 0, "bytes"})
		}
		if w := st.Written[p].Waiting; w > 0 {
			out = append(out, Work{"write", name, 0, uint64(w), "chunks"})
		}
	}
	return out
}

// maxListed is how many pins, and how many connections, one reply lists.
const maxListed = 4096

func (c *call) version(*None) (*Version, error) {
	v := Version{Version: human.VersionText()}
	for i := range c.routes {
		v.Calls = append(v.Calls, c.routes[i].method+" "+c.routes[i].path)
	}
	return &v, nil
}

func (c *call) config(*None) (*Config, error) {
	cfg, err := c.o.Config()
	cfg.Policies = c.policies()
	return &cfg, err
}

func (c *call) claims(*None) (*Claims, error) {
	pins, holders, more := c.o.Server.Held(maxListed)
	retained, others := c.o.Server.Claims().List(false, maxListed)
	reply := Claims{Pins: append([]hint.Held{}, pins...), Holders: append([]Holder{}, holders...), Retained: append([]hint.Held{}, retained...), LeftOut: more + others}
	return &reply, nil
}

// revoke frees pins, or all that a connection holds.
func (c *call) revoke(q *ClaimRequest) (*Chunks, error) {
	s, chunks := c.o.Server, 0
	switch given := count(q.Scope != "", q.AllPins, q.Connection != nil); {
	case given != 1:
		return nil, refuse(BadRequest, "give one of scope, all_pins and connection, not %d", given)
	case !reflect.DeepEqual(*q, ClaimRequest{Action: q.Action, Scope: q.Scope, AllPins: q.AllPins, Connection: q.Connection}):
		return nil, refuse(BadRequest, "revoke takes one of scope, all_pins and connection, and nothing else")
	case q.Scope != "":
		chunks = s.RevokePins(func(by *hint.Claimant) bool { return by.Name == q.Scope })
	case q.AllPins:
		chunks = s.RevokePins(func(*hint.Claimant) bool { return true })
	default:
		var ok bool
		if chunks, ok = s.RevokeConnection(*q.Connection); !ok {
			return nil, refuse(NotFound, "there is no connection %d", *q.Connection).advise("`kvstored list leases` lists those that hold something")
		}
	}
	return &Chunks{uint64(chunks)}, nil
}

// count is how many of them are true.
func count(given ...bool) (n int) {
	for _, is := range given {
		if is {
			n++
		}
	}
	return n
}

func (c *call) spaces(q *SpacesRequest) (*Spaces, error) {
	var after key.SpaceID
	if q.After != "" {
		var err error
		if after, err = spaceID("after", q.After); err != nil {
			return nil, err
		}
	}
	uses, more := c.o.Server.Spaces(c.uid, after)
	reply := Spaces{Spaces: append([]Space{}, uses...)}
	if more {
		reply.Next = uses[len(uses)-1].Space
	}
	return &reply, nil
}

// spaceID reads the id of a space.
func spaceID(field, text string) (id key.SpaceID, err error) {
	digits, err := hex.DecodeString(text)
	if err != nil || len(digits) != len(id) {
		return id, refuse(BadRequest, "%s: %.80q is no space", field, text).advise("give its 32 hex digits, as `kvstored list spaces` shows them")
	}
	return key.SpaceID(digits), nil
}

func (c *call) policies() *Policies {
	reply := Policies{Tiers: make(map[string]string), Names: policy.All()}
	for p := tier.CPU; p < tier.Places; p++ {
		if name, ok := c.o.Store.Operator.PolicyOf(p); ok {
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
	if err := c.o.Store.Operator.SetPolicy(p, q.Policy); err != nil {
		return nil, err
	}
	return c.policies(), nil
}

func (c *call) upload(q *UploadRequest) (*Uploaded, error) {
	if q.DryRun {
		h, err := c.o.Store.Operator.Holdings(c.ctx)
		return &Uploaded{Holdings: &h}, err
	}
	from := uint64(0)
	if q.After != "" {
		var err error
		if from, err = strconv.ParseUint(q.After, 16, 64); err != nil {
			return nil, refuse(BadRequest, "after: %.40q ends no step", q.After).advise("write next of the step before")
		}
	}
	u, err := c.o.Store.Operator.Upload(c.ctx, from)
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
	reply, have := &Forgotten{Tiers: make(map[string]uint64)}, c.o.Store.Operator.Stats().Tiers
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
	n, err := c.o.Store.Remover.Clear(c.ctx, from)
	return &Forgotten{Chunks: uint64(n)}, err
}

func (c *call) forgetSpace(q *ForgetRequest) (*Forgotten, error) {
	id, err := c.ownSpace("forget", q.Space)
	if err != nil {
		return nil, err
	}
	p, err := c.o.Store.Remover.Purge(c.ctx, id, q.After, q.DryRun)
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
	s, err := c.o.Store.Operator.Scrub(c.ctx, q.BytesPerSecond)
	return &s, err
}

// sample is what clients have asked for, for the lab to play.
func (c *call) sample(*None) (*explain.Sample, error) {
	return c.o.Sample.Sample(), nil
}
