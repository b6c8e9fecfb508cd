package server

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/kvstored/kvstored/internal/stack"
	"github.com/kvstored/kvstored/tier"
)

const (
	// maxModels bounds the models that are counted each by itself; the others share a
	// count under otherModels, which no model can be called.
	maxModels   = 64
	otherModels = "(others)"
	// mostLabel is how many bytes of a name are told.
	mostLabel = 80
)

// models counts tokens and bytes by model. Its mutex is a leaf.
type models struct {
	mu struct {
		sync.Mutex
		byLabel map[string]*modelCount
	}
	others modelCount
}

// modelCount is the counters of one model.
type modelCount struct {
	asked, hitBytes, storedBytes atomic.Uint64
	rate                         atomic.Uint32                  // tokens a second that its engine computes, as it said last; 0: it did not
	saved                        atomic.Uint64                  // microseconds that it would have computed
	hit                          [tier.Remote + 1]atomic.Uint64 // tokens
}

// of is the counters of a model by its name.
func (m *models) of(name string) *modelCount {
	label := labelOf(name)
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.mu.byLabel[label]
	switch {
	case c != nil:
		return c
	case len(m.mu.byLabel) == maxModels:
		return &m.others
	case m.mu.byLabel == nil:
		m.mu.byLabel = make(map[string]*modelCount)
	}
	c = new(modelCount)
	m.mu.byLabel[label] = c
	return c
}

// labelOf is a name as a label can be.
func labelOf(name string) string {
	name = strings.Trim(strings.ToValidUTF8(name[:min(len(name), mostLabel)], ""), "()")
	return cmp.Or(name, "(none)")
}

// had counts the final prefix of a job.
func (m *modelCount) had(in *[tier.Places]stack.Count, bytes uint64) {
	for p := range m.hit {
		m.hit[p].Add(in[p].Tokens)
		m.save(in[p].Tokens)
	}
	m.hitBytes.Add(bytes)
}

// got counts one chunk of an inline get.
func (m *modelCount) got(p tier.Place, tokens uint32, bytes int) {
	if int(p) < len(m.hit) {
		m.hit[p].Add(uint64(tokens))
		m.save(uint64(tokens))
	}
	m.hitBytes.Add(uint64(bytes))
}

// save counts the time in which an engine that has told its rate would have computed tokens.
func (m *modelCount) save(tokens uint64) {
	if rate := m.rate.Load(); rate > 0 {
		m.saved.Add(1e6 * tokens / uint64(rate))
	}
}

// ModelStats are the numbers of one model, or of all that have none of their own.
type ModelStats struct {
	Model       string                  `json:"model"`
	AskedTokens uint64                  `json:"asked_tokens"`
	HitTokens   [tier.Remote + 1]uint64 `json:"hit_tokens"` // by tier, nearest first
	HitBytes    uint64                  `json:"hit_bytes"`
	StoredBytes uint64                  `json:"stored_bytes"`
	PrefillRate uint32                  `json:"prefill_rate,omitempty"` // tokens a second that its engine says it computes
	Saved       float64                 `json:"saved_seconds"`          // of the engine, at the rates that it said
}

// read lists the models that there are, by name.
func (m *models) read() (out []ModelStats) {
	m.mu.Lock()
	for label, c := range m.mu.byLabel {
		out = append(out, c.read(label))
	}
	m.mu.Unlock()
	slices.SortFunc(out, func(a, b ModelStats) int { return strings.Compare(a.Model, b.Model) })
	others := m.others.read(otherModels)
	others.PrefillRate = 0 // each has its own
	if others != (ModelStats{Model: otherModels}) {
		out = append(out, others)
	}
	return out
}

func (m *modelCount) read(label string) ModelStats {
	s := ModelStats{Model: label, AskedTokens: m.asked.Load(), HitBytes: m.hitBytes.Load(), StoredBytes: m.storedBytes.Load(), PrefillRate: m.rate.Load(), Saved: float64(m.saved.Load()) / 1e6}
	for p := range m.hit {
		s.HitTokens[p] = m.hit[p].Load()
	}
	return s
}
