package admin

import (
	"errors"

	"github.com/kvstored/kvstored/internal/server"
	"github.com/kvstored/kvstored/tier"
)

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
