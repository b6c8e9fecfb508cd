package admin

import (
	"encoding/hex"
	"errors"
	"time"

	"github.com/kvstored/kvstored/internal/missing"
	"github.com/kvstored/kvstored/internal/server"
	"github.com/kvstored/kvstored/tier"
)

// WhyRequest names a prompt: by the lookup id under which an engine has asked for it, or
// by its space and its hashes or tokens.
type WhyRequest struct {
	LookupID string   `json:"lookup_id,omitempty"`
	Space    string   `json:"space,omitempty"`  // its id, 32 hex digits
	Hashes   []string `json:"hashes,omitempty"` // of the first chunks of a prompt, 32 hex digits each
	Tokens   []uint32 `json:"tokens,omitempty"` // of a prompt whose space hashes tokens
}

// Why is why prompts were not had to their ends, or are not there to their ends.
type Why struct {
	Prompts []Missed `json:"prompts"` // of a lookup id: that of each user
}

// Missed is one of them.
type Missed struct {
	LookupID string      `json:"lookup_id"` // "" of a prompt that the call gave
	UID      uint32      `json:"uid"`
	Space    string      `json:"space"`
	Model    string      `json:"model"` // "" where the space was not opened since the start
	Chunks   int         `json:"chunks"`
	Tokens   uint64      `json:"tokens"`
	Got      uint64      `json:"got_tokens"`
	Chunk    int         `json:"missing_chunk"` // the first; chunks where none is
	Partial  bool        `json:"partial"`       // it is the last, and not a whole one: stored only where its client asks for that
	Reason   string      `json:"reason"`
	Tier     string      `json:"tier"`          // that had it, has it or declined it; none
	Policy   string      `json:"policy"`        // that chose an evicted one
	Left     *time.Time  `json:"left"`          // when it left its last tier, or was declined
	Since    uint64      `json:"evicted_since"` // bytes that the tier has evicted since then
	Nearest  []NearestOf `json:"nearest"`       // spaces that have the chunk, of other_space
	Sentence string      `json:"sentence"`
}

// NearestOf is a space that has a chunk that is missing in another.
type NearestOf struct {
	Space   string    `json:"space"`
	Model   string    `json:"model"`
	Differs []Differs `json:"differs"`
}

// Differs is a field that two spaces differ in.
type Differs struct {
	Field string `json:"field"`
	Here  string `json:"here"`
	There string `json:"there"`
}

func (c *call) why(q *WhyRequest) (*Why, error) {
	given := 0
	for _, is := range []bool{q.LookupID != "", len(q.Hashes) > 0, len(q.Tokens) > 0} {
		if is {
			given++
		}
	}
	if given != 1 {
		return nil, refuse(BadRequest, "give one of lookup_id, hashes and tokens, not %d", given)
	}
	var found []*server.Miss
	var err error
	if q.LookupID != "" {
		found = c.o.Server.WhyLookup(q.LookupID)
	} else {
		found, err = c.whyPrompt(q)
	}
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		e := refuse(NotFound, "nothing is remembered of lookup %.80q", q.LookupID)
		e.Do = "the last prompts of each engine are, where the engine names them; ask with the tokens of the prompt"
		return nil, e
	}
	reply := &Why{}
	for _, m := range found {
		reply.Prompts = append(reply.Prompts, missedOf(m))
	}
	return reply, nil
}

// mostMisses is how many prompts that missed something one reply lists.
const mostMisses = 50

func (c *call) misses(*None) (*Why, error) {
	reply := &Why{Prompts: []Missed{}}
	for _, m := range c.o.Server.Misses(mostMisses) {
		reply.Prompts = append(reply.Prompts, missedOf(m))
	}
	return reply, nil
}

func (c *call) whyPrompt(q *WhyRequest) ([]*server.Miss, error) {
	o := server.Order{UID: c.uid, Tokens: q.Tokens, Partial: true}
	var err error
	if o.Space, err = spaceID("space", q.Space); err != nil {
		return nil, err
	}
	if o.Hashes, err = hashesOf(q.Hashes); err != nil {
		return nil, err
	}
	m, err := c.o.Server.WhyPrompt(c.ctx, &o)
	switch {
	case errors.Is(err, tier.ErrNotFound):
		e := refuse(NotFound, "%v", err)
		e.Do = "give the hashes of the prompt"
		return nil, e
	case err != nil:
		return nil, refuse(BadRequest, "tokens: %v", err)
	}
	return []*server.Miss{m}, nil
}

func missedOf(m *server.Miss) Missed {
	out := Missed{
		LookupID: m.LookupID, UID: m.UID, Space: hex.EncodeToString(m.Space[:]), Model: m.Model, Chunks: m.Chunks, Tokens: m.Asked, Got: m.Got, Chunk: m.Chunk, Partial: m.Partial,
		Reason: m.Why.Name(), Tier: m.Why.TierName(), Policy: m.Why.Policy, Since: m.Why.Since, Nearest: []NearestOf{},
		Sentence: missing.Explain(&m.Why, time.Now()),
	}
	if at := m.Why.Time(); !at.IsZero() {
		out.Left = &at
	}
	for _, n := range m.Nearest {
		near := NearestOf{Space: hex.EncodeToString(n.Space[:]), Model: n.Model, Differs: []Differs{}}
		for _, d := range n.Differs {
			near.Differs = append(near.Differs, Differs(d))
		}
		out.Nearest = append(out.Nearest, near)
	}
	return out
}
