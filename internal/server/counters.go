package server

import (
	"sync/atomic"

	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/explain"
	"github.com/kvstored/kvstored/internal/server/hint"
	"github.com/kvstored/kvstored/internal/stack"
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
func (c *counters) asked(chain *key.Chain, m *stack.Match) {
	tokens := uint64(0)
	for _, t := range chain.Tokens[chain.Skip:] {
		tokens += uint64(t)
	}
	c.prefetches.Add(1)
	c.leases.Add(1)
	c.askedChunks.Add(uint64(chain.Len() - chain.Skip))
	c.askedTokens.Add(tokens)
	c.matchedChunks.Add(uint64(m.Chunks))
	c.matchedTokens.Add(m.Tokens)
}

// hit counts the final prefix of a job.
func (c *counters) hit(in [tier.Places]stack.Count) {
	c.gotBack.Add(1)
	for p, n := range in {
		c.hitChunks[p].Add(uint64(n.Chunks))
		c.hitTokens[p].Add(n.Tokens)
	}
}

// got counts one chunk of an inline get.
func (c *counters) got(p tier.Place, tokens uint32) {
	c.hitChunks[p].Add(1)
	c.hitTokens[p].Add(uint64(tokens))
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
		DiffersBySpace:   s.differing.counts(),
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
		Retained:         s.wishes.claims.Stats(),
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
