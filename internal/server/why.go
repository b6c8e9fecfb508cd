package server

import (
	"context"
	"fmt"
	"slices"

	"github.com/kvstored/kvstored/internal/missing"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

// Miss is why a prompt was not had to its end, or is not there to its end now.
type Miss struct {
	UID      uint32
	Space    key.SpaceID
	Model    string // "" where the space was not opened since the start
	LookupID string // of a prompt that was asked for under one
	Chunks   int
	Asked    uint64 // tokens
	Got      uint64 // of these
	Chunk    int    // that is missing; Chunks where none is, or that is not known
	Why      missing.Absence
	Nearest  []Nearest // spaces that have the chunk, where no other reason is known
}

// Nearest is another space that has a missing chunk.
type Nearest struct {
	Space   key.SpaceID
	Model   string
	Differs []Difference // none where one of the two spaces was not opened since the start
}

// Difference is a field that two spaces differ in, with what it is in each.
type Difference struct{ Field, Here, There string }

// mostNearest bounds how many spaces a Miss names.
const mostNearest = 8

// WhyPrompt says how much of the prompt of an order there is, and why not more.
func (s *Server) WhyPrompt(ctx context.Context, o *Order) (*Miss, error) {
	c, err := s.Prompt(o)
	if err != nil {
		return nil, err
	}
	m, err := s.o.Stack.Match(ctx, c, tier.All)
	if err != nil {
		return nil, err
	}
	miss := &Miss{UID: o.UID, Chunks: c.Len(), Got: m.Tokens, Chunk: m.Chunks, Why: s.o.Stack.Why(c, m.Chunks, tier.All)}
	for _, n := range c.Tokens {
		miss.Asked += uint64(n)
	}
	s.name(miss, c)
	return miss, nil
}

// WhyLookup says what came of the prompts that were asked for under a lookup id last, of
// each user that has used it. It is empty where none is remembered.
func (s *Server) WhyLookup(lookupID string) []*Miss {
	var out []*Miss
	for _, r := range s.recent.outcomes(lookupID) {
		c := &r.chains[0]
		miss := &Miss{UID: r.uid, LookupID: lookupID, Chunks: c.Len() - c.Skip, Asked: r.outcome.asked, Got: r.outcome.got, Why: r.outcome.why}
		for left := int64(miss.Got); miss.Chunk < miss.Chunks && left > 0; miss.Chunk++ {
			left -= int64(c.Tokens[c.Skip+miss.Chunk])
		}
		at := *c
		at.Hashes, at.Tokens, at.Skip = c.Hashes[c.Skip:], c.Tokens[c.Skip:], 0
		s.name(miss, &at)
		out = append(out, miss)
	}
	slices.SortFunc(out, func(a, b *Miss) int { return int(a.UID) - int(b.UID) })
	return out
}

// name adds what the catalog knows to a miss of c.
func (s *Server) name(m *Miss, c *key.Chain) {
	here := s.catalog.space(c.Space)
	m.Space, m.Model = c.Space, here.Model
	if m.Why.Reason != missing.OtherSpace || m.Chunk >= c.Len() {
		return
	}
	for _, id := range s.o.Stack.SpacesWith(c.Key(m.Chunk), mostNearest) {
		there := s.catalog.space(id)
		n := Nearest{Space: id, Model: there.Model}
		if here.Model != "" && there.Model != "" {
			n.Differs = differences(&here, &there)
		}
		m.Nearest = append(m.Nearest, n)
	}
	slices.SortStableFunc(m.Nearest, func(a, b Nearest) int { return len(a.Differs) - len(b.Differs) })
}

// differences are the fields that two spaces differ in. Spaces with other salts or methods
// have no chunk in common.
func differences(a, b *key.Space) (out []Difference) {
	for _, f := range []Difference{
		{"model", a.Model, b.Model},
		{"revision", a.Revision, b.Revision},
		{"lora", a.LoRA, b.LoRA},
		{"world", fmt.Sprint(a.World), fmt.Sprint(b.World)},
		{"worker", fmt.Sprint(a.Worker), fmt.Sprint(b.Worker)},
		{"dtype", a.DType, b.DType},
		{"chunk_tokens", fmt.Sprint(a.ChunkTokens), fmt.Sprint(b.ChunkTokens)},
		{"method", string(a.Method), string(b.Method)},
		{"group", a.Group, b.Group},
		{"tags", tagsText(a.Tags), tagsText(b.Tags)},
	} {
		if f.Here != f.There {
			out = append(out, f)
		}
	}
	return out
}

func tagsText(tags []key.Tag) (s string) {
	for _, t := range tags {
		s += t.Name + "=" + t.Value + " "
	}
	return s
}
