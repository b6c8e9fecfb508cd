package server

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/explain"
	"github.com/kvstored/kvstored/internal/index"
	"github.com/kvstored/kvstored/internal/server/hint"
	"github.com/kvstored/kvstored/internal/store"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

type counters struct {
	connections, requests, malformed, pushes, revoked, differs atomic.Uint64

	refused [refusedReasons]atomic.Uint64 // connections

	missed   explain.Counts
	lost     lostCounts
	failures failures

	prefetches, askedChunks, askedTokens       atomic.Uint64
	matchedChunks, matchedTokens               atomic.Uint64
	hitChunks, hitTokens                       [tier.Places]atomic.Uint64
	storedChunks, storedBytes, leases, gotBack atomic.Uint64
	warmChunks, warmBytes                      atomic.Uint64

	staging stagingCounters
}

// asked counts a prefetch and the chunks that it found.
func (c *counters) asked(chain *key.Chain, m *store.Match) {
	c.prefetches.Add(1)
	c.leases.Add(1)
	c.askedChunks.Add(uint64(chain.Len() - chain.Skip))
	c.askedTokens.Add(chain.TokensIn(chain.Skip, chain.Len()))
	c.matchedChunks.Add(uint64(m.Chunks))
	c.matchedTokens.Add(m.Tokens)
}

// hit counts the final prefix of a job.
func (c *counters) hit(in [tier.Places]store.Count) {
	c.gotBack.Add(1)
	for p, n := range in {
		c.hitChunks[p].Add(uint64(n.Chunks))
		c.hitTokens[p].Add(n.Tokens)
	}
}

// got counts one chunk of an inline get, which asked for it, for its model too.
func (c *counters) got(m *modelCount, p tier.Place, tokens uint64, bytes int) {
	c.askedChunks.Add(1)
	c.askedTokens.Add(tokens)
	m.asked.Add(tokens)
	c.hitChunks[p].Add(1)
	c.hitTokens[p].Add(tokens)
	var in [tier.Places]store.Count
	in[p].Tokens = tokens
	m.had(&in, uint64(bytes))
}

func (c *counters) stored(chunks int, bytes uint64) {
	c.storedChunks.Add(uint64(chunks))
	c.storedBytes.Add(bytes)
}

// warmed counts a chunk that a warm brought up.
func (c *counters) warmed(bytes int64) {
	c.warmChunks.Add(1)
	c.warmBytes.Add(uint64(bytes))
}

// Stats is a snapshot of a server's counters since the start.
type Stats struct {
	Connections      int                   `json:"connections"`
	ConnectionsTotal uint64                `json:"connections_total"`
	Refused          uint64                `json:"connections_refused"`    // those of front ends too
	RefusedBy        map[string]uint64     `json:"connections_refused_by"` // the same, by reason
	Requests         uint64                `json:"requests"`
	Errors           uint64                `json:"errors"`
	ErrorsBy         []Failures            `json:"errors_by"` // the same, by operation and code
	Models           []ModelStats          `json:"models"`    // of spaces that clients have opened
	Malformed        uint64                `json:"malformed_frames"`
	Pushes           uint64                `json:"pushes"`
	LeasesLive       int64                 `json:"leases_live"`
	Revoked          uint64                `json:"revoked"` // leases and fills that grew too old
	Differs          uint64                `json:"put_differs"`
	DiffersBySpace   map[string]uint64     `json:"puts_differ"` // the same, by space
	Prefetches       uint64                `json:"prefetches"`
	AskedChunks      uint64                `json:"asked_chunks"`
	AskedTokens      uint64                `json:"asked_tokens"`
	MatchedChunks    uint64                `json:"matched_chunks"`
	MatchedTokens    uint64                `json:"matched_tokens"`
	HitChunks        map[tier.Place]uint64 `json:"hit_chunks"` // in final prefixes, by where they were found
	HitTokens        map[tier.Place]uint64 `json:"hit_tokens"`
	Missed           explain.Totals        `json:"missed"`      // tokens that prefetches did not get, by why
	Lost             []Lost                `json:"usable_lost"` // tokens of hybrid models, by the group that cut them off
	StoredChunks     uint64                `json:"stored_chunks"`
	StoredBytes      uint64                `json:"stored_bytes"`
	Retained         hint.ClaimStats       `json:"retained"`
	WarmChunks       uint64                `json:"warm_chunks"` // brought up by warms
	WarmBytes        uint64                `json:"warm_bytes"`
	StagingBytes     int64                 `json:"staging_bytes"`            // of the clients' windows, that may have pages
	StagingGivenBack uint64                `json:"staging_given_back_bytes"` // unused for a minute
	StagingHuge      bool                  `json:"staging_huge_pages"`       // the kernel gives them to shared memory
}

// Stats returns a snapshot. Hits are counted when a job's lease ends.
func (s *Server) Stats() Stats {
	c := &s.count
	st := Stats{
		Connections:      s.sessions.len(),
		ConnectionsTotal: c.connections.Load(),
		RefusedBy:        make(map[string]uint64),
		Requests:         c.requests.Load(),
		Models:           s.models.read(),
		Malformed:        c.malformed.Load(),
		Pushes:           c.pushes.Load(),
		LeasesLive:       int64(c.leases.Load() - c.gotBack.Load()),
		Revoked:          c.revoked.Load(),
		Differs:          c.differs.Load(),
		DiffersBySpace:   s.conflicts.counts(),
		Prefetches:       c.prefetches.Load(),
		AskedChunks:      c.askedChunks.Load(),
		AskedTokens:      c.askedTokens.Load(),
		MatchedChunks:    c.matchedChunks.Load(),
		MatchedTokens:    c.matchedTokens.Load(),
		HitChunks:        make(map[tier.Place]uint64),
		HitTokens:        make(map[tier.Place]uint64),
		Missed:           c.missed.Read(),
		Lost:             c.lost.read(),
		StoredChunks:     c.storedChunks.Load(),
		StoredBytes:      c.storedBytes.Load(),
		Retained:         s.hints.claims.Stats(),
		WarmChunks:       c.warmChunks.Load(),
		WarmBytes:        c.warmBytes.Load(),
		StagingBytes:     c.staging.bytes.Load(),
		StagingGivenBack: c.staging.givenBack.Load(),
		StagingHuge:      arena.WindowsHuge(),
	}
	st.ErrorsBy, st.Errors = c.failures.read()
	for reason, name := range refusedNames {
		n := c.refused[reason].Load()
		st.RefusedBy[name] = n
		st.Refused += n
	}
	for p := range tier.Remote + 1 {
		st.HitChunks[p] = c.hitChunks[p].Load()
		st.HitTokens[p] = c.hitTokens[p].Load()
	}
	return st
}

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

// had counts the final prefix of a job, or a chunk of an inline get.
func (m *modelCount) had(in *[tier.Places]store.Count, bytes uint64) {
	for p := range m.hit {
		m.hit[p].Add(in[p].Tokens)
		m.save(in[p].Tokens)
	}
	m.hitBytes.Add(bytes)
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

// lostReason is why what a group needs was not there.
type lostReason uint8

const (
	lostNever   lostReason = iota // it was not stored, as far as is known
	lostEvicted                   // it was stored, and has gone
	lostLate                      // it was not up at the deadline
	lostReasons
)

var lostNames = [lostReasons]string{"never", "evicted", "late"}

// lostCounts are tokens of prompts of hybrid models that the full groups had, or were to be
// brought up, and that could not be used, by the kind of the group that cut them off.
type lostCounts [index.State + 1][lostReasons]atomic.Uint64

// Lost is one of these counts.
type Lost struct {
	Group  string `json:"group"`
	Reason string `json:"reason"`
	Tokens uint64 `json:"tokens"`
}

// read is a snapshot of those that are not 0.
func (c *lostCounts) read() (out []Lost) {
	for kind := range c {
		for reason := range c[kind] {
			if n := c[kind][reason].Load(); n > 0 {
				out = append(out, Lost{index.Kind(kind).String(), lostNames[reason], n})
			}
		}
	}
	return out
}

// cut counts what a plan lost to the first group that lacks something at the end of the run.
func (c *lostCounts) cut(p *prompt) {
	m := &p.plan
	if m.End >= m.Run || p.Groups.OnlyStates() { // without a full group nothing was there
		return
	}
	for g, group := range p.Groups {
		if m.Lacks>>g&1 == 1 {
			c[group.Kind][whyLost(p, g, m.Run)].Add(uint64(m.Run - m.End))
			return
		}
	}
}

// whyLost is why a prefix of n tokens lacks something of group g: the last chunk that is missing says it.
func whyLost(p *prompt, g, n int) lostReason {
	from, to := p.Groups[g].Needs(p.Skip, n)
	for i := to - 1; i >= from; i-- {
		for r := range p.Chains[g] {
			switch p.store.Lookups.Why(&p.Chains[g][r], i, p.search).Reason {
			case explain.Nothing:
			case explain.NeverStored, explain.OtherSpace, explain.Pending, explain.Scanning:
				return lostNever
			default:
				return lostEvicted
			}
		}
	}
	return lostNever
}
