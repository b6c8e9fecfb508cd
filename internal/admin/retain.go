package admin

import (
	"cmp"
	"encoding/hex"
	"errors"
	"time"

	"github.com/kvstored/kvstored/internal/server"
	"github.com/kvstored/kvstored/internal/server/hint"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

// ClaimRequest asks for something to be done with a prompt: that of the session, of the
// hashes, or of the tokens; or for pins, or all that a connection holds, to be revoked.
type ClaimRequest struct {
	Action   string   `json:"action"`            // retain, release, prefetch, demote or revoke
	Space    string   `json:"space,omitempty"`   // its id, 32 hex digits
	UID      *uint32  `json:"uid,omitempty"`     // whose session and claim; null = the caller's
	Session  string   `json:"session,omitempty"` // its last prompt; also the name of the claim
	Hashes   []string `json:"hashes,omitempty"`  // of the first chunks of a prompt, 32 hex digits each
	Tokens   []uint32 `json:"tokens,omitempty"`  // of a prompt whose space hashes tokens
	Scope    string   `json:"scope,omitempty"`   // name of the claim instead, or of the pins that are revoked
	Priority *uint8   `json:"priority,omitempty"`
	Seconds  *float64 `json:"seconds,omitempty"` // null = as long as may be

	AllPins    bool    `json:"all_pins,omitempty"`   // are revoked
	Connection *uint64 `json:"connection,omitempty"` // all that it holds is revoked
}

func (c *call) claim(q *ClaimRequest) (*Chunks, error) {
	switch q.Action {
	case "revoke":
		return c.revoke(q)
	case "retain", "release", "prefetch", "demote":
	default:
		return nil, refuse(BadRequest, "%.80q is no action", q.Action).advise("write retain, release, prefetch, demote or revoke")
	}
	if q.AllPins || q.Connection != nil {
		return nil, refuse(BadRequest, "all_pins and connection go with revoke only, not with %s", q.Action)
	}
	o := server.Order{UID: c.uid, Session: q.Session, Tokens: q.Tokens}
	if q.UID != nil {
		o.UID = *q.UID
	}
	var err error
	if o.Space, err = spaceID("space", q.Space); err != nil {
		return nil, err
	}
	given := count(q.Session != "", len(q.Hashes) > 0, len(q.Tokens) > 0)
	name := cmp.Or(q.Scope, q.Session)
	if given == 0 && q.Action == "release" { // all of a claimant
		return &Chunks{uint64(c.o.Server.Claims().ReleaseAll(hint.Claimant{UID: o.UID, Space: o.Space, Name: name}))}, nil
	}
	if given != 1 {
		return nil, refuse(BadRequest, "give one of session, hashes and tokens, not %d", given)
	}
	if o.Hashes, err = hashesOf(q.Hashes); err != nil {
		return nil, err
	}
	return c.carryOut(q, &o, name)
}

// carryOut does the action with the prompt of an order.
func (c *call) carryOut(q *ClaimRequest, o *server.Order, name string) (*Chunks, error) {
	chain, err := c.o.Server.Prompt(o)
	if err != nil {
		return nil, noPrompt(err, "give the hashes of the prompt, or wait until a client has asked for it")
	}
	switch q.Action {
	case "retain":
		return c.keep(q, o, name, chain)
	case "release":
		return &Chunks{uint64(c.o.Server.Claims().Release(hint.Claimant{UID: o.UID, Space: o.Space, Name: name}, chain.Hashes))}, nil
	case "prefetch":
		c.o.Server.Promote(o, chain)
	case "demote":
		c.o.Server.Done(o, name, chain)
	}
	return &Chunks{uint64(chain.Len())}, nil
}

// keep retains a prompt.
func (c *call) keep(q *ClaimRequest, o *server.Order, name string, chain *key.Chain) (*Chunks, error) {
	lasts := hint.MaxDuration
	if q.Seconds != nil {
		lasts = time.Duration(*q.Seconds * float64(time.Second))
	}
	switch {
	case q.Priority != nil && (*q.Priority == 0 || *q.Priority > hint.MaxPriority):
		return nil, refuse(BadRequest, "priority: give a whole number from 1 to %d, or none", hint.MaxPriority)
	case q.Seconds != nil && (*q.Seconds < 0 || *q.Seconds > hint.MaxDuration.Seconds()):
		return nil, refuse(BadRequest, "seconds: %v is not from 0 to %.0f", *q.Seconds, hint.MaxDuration.Seconds())
	}
	n, err := c.o.Server.RetainFor(o, name, chain, lasts)
	if err != nil && n == 0 {
		return nil, refuse(NoSpace, "%v", err).advise("release what is retained (`kvstored list claims` lists it), or raise retain.uid or retain.total")
	}
	return &Chunks{uint64(n)}, nil
}

// hashesOf reads hashes of chunks.
func hashesOf(texts []string) (hs []key.Hash, err error) {
	for i, text := range texts {
		digits, err := hex.DecodeString(text)
		if err != nil || len(digits) != len(key.Hash{}) {
			return nil, refuse(BadRequest, "hashes: number %d, %.80q, is no hash", i, text).advise("give 32 hex digits for each chunk, first to last")
		}
		hs = append(hs, key.Hash(digits))
	}
	return hs, nil
}

// WhyRequest names a prompt: by the lookup id under which an engine has asked for it, or
// by its space and its hashes or tokens; or it asks for the last prompts that missed something.
type WhyRequest struct {
	Recent   bool     `json:"recent,omitempty"`
	LookupID string   `json:"lookup_id,omitempty"`
	Space    string   `json:"space,omitempty"`  // its id, 32 hex digits
	Hashes   []string `json:"hashes,omitempty"` // of the first chunks of a prompt, 32 hex digits each
	Tokens   []uint32 `json:"tokens,omitempty"` // of a prompt whose space hashes tokens
}

// Why is why prompts were not had to their ends, or are not there to their ends.
type Why struct {
	Prompts []Missed `json:"prompts"` // of a lookup id: that of each user
}

func (c *call) why(q *WhyRequest) (*Why, error) {
	if given := count(q.Recent, q.LookupID != "", len(q.Hashes) > 0, len(q.Tokens) > 0); given != 1 {
		return nil, refuse(BadRequest, "give one of recent, lookup_id, hashes and tokens, not %d", given)
	}
	var found []Missed
	var err error
	switch {
	case q.Recent:
		found = c.o.Server.Misses(mostMisses)
	case q.LookupID != "":
		found = c.o.Server.WhyLookup(q.LookupID)
	default:
		found, err = c.whyPrompt(q)
	}
	if err != nil {
		return nil, err
	}
	if len(found) == 0 && !q.Recent {
		return nil, refuse(NotFound, "nothing is remembered of lookup %.80q", q.LookupID).advise("the last prompts of each engine are, where the engine names them; ask with the tokens of the prompt")
	}
	return &Why{found}, nil
}

// mostMisses is how many prompts that missed something one reply lists.
const mostMisses = 50

func (c *call) whyPrompt(q *WhyRequest) ([]Missed, error) {
	o := server.Order{UID: c.uid, Tokens: q.Tokens, Partial: true}
	var err error
	if o.Space, err = spaceID("space", q.Space); err != nil {
		return nil, err
	}
	if o.Hashes, err = hashesOf(q.Hashes); err != nil {
		return nil, err
	}
	m, err := c.o.Server.WhyPrompt(c.ctx, &o)
	return m, noPrompt(err, "give the hashes of the prompt")
}

// noPrompt is what is wrong with an order whose prompt err is about; nil where nothing is.
func noPrompt(err error, advice string) error {
	switch {
	case errors.Is(err, tier.ErrNotFound):
		return refuse(NotFound, "%v", err).advise(advice)
	case err != nil:
		return refuse(BadRequest, "tokens: %v", err)
	}
	return nil
}
