package tier

import (
	"strings"

	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/key"
)

// Quota bounds what the spaces whose model matches, all together, occupy in
// each bounded tier. Of several that match, the first counts.
type Quota struct {
	Match string // see MatchModel
	Bytes int64
}

// Quoted is a bounded tier that keeps quotas.
type Quoted interface {
	// Assign puts a space under a quota, given by its place in the tier's
	// options. Calls for a space that is under one change nothing.
	Assign(space key.SpaceID, quota int)
	// OverQuota reports whether Trim would evict to keep a quota.
	OverQuota() bool
}

// QuotaUse is a snapshot of one quota in one tier.
type QuotaUse struct {
	Match        string `json:"match"`
	QuotaBytes   int64  `json:"quota_bytes"`
	UsedBytes    int64  `json:"used_bytes"`
	Evictions    uint64 `json:"evictions"` // chunks that went because their own space was over it
	EvictedBytes uint64 `json:"evicted_bytes"`
	Refused      uint64 `json:"refused"` // chunks that had no room under it
}

// QuotasOf is what a tier says of the quotas of its ledger; the Stack names
// them.
func QuotasOf(l *ledger.Ledger) []QuotaUse {
	var out []QuotaUse
	for _, q := range l.Quotas() {
		out = append(out, QuotaUse{
			QuotaBytes: q.QuotaBytes, UsedBytes: q.UsedBytes,
			Evictions: q.Evictions, EvictedBytes: q.EvictedBytes, Refused: q.Refused,
		})
	}
	return out
}

// OpenSpace tells the store the model of a space. Only the id of a space is stored,
// so that until it is opened no quota counts what an earlier process left of
// it.
func (s *Stack) OpenSpace(id key.SpaceID, model string) {
	for i, q := range s.quotas {
		if !MatchModel(q.Match, model) {
			continue
		}
		for _, t := range s.tiers {
			if t, ok := under[Quoted](t); ok {
				t.Assign(id, i)
			}
		}
		s.filled() // what is over it now goes
		for _, w := range s.writers {
			w.filled()
		}
		return
	}
}

// MatchModel reports whether all of a model's name matches the pattern, in
// which * stands for any characters or none, slashes included, and ? for any
// one. There is no escape. Case counts.
func MatchModel(pattern, model string) bool {
	head, rest, star := strings.Cut(pattern, "*")
	h, m := []rune(head), []rune(model)
	if len(m) < len(h) || !matchHead(h, m) {
		return false
	}
	m = m[len(h):]
	if !star {
		return len(m) == 0
	}
	for parts := strings.Split(rest, "*"); ; parts = parts[1:] {
		p := []rune(parts[0])
		if len(parts) == 1 { // the end of the pattern is the end of the name
			return len(m) >= len(p) && matchHead(p, m[len(m)-len(p):])
		}
		for len(m) >= len(p) && !matchHead(p, m) {
			m = m[1:]
		}
		if len(m) < len(p) {
			return false
		}
		m = m[len(p):]
	}
}

// matchHead compares p with as much of m, which is as long or longer.
func matchHead(p, m []rune) bool {
	for i, c := range p {
		if c != '?' && c != m[i] {
			return false
		}
	}
	return true
}
