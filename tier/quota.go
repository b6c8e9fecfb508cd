package tier

import (
	"github.com/kvstored/kvstored/internal/glob"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/key"
)

// Quota bounds what the spaces whose model matches, all together, occupy in
// each bounded tier. Of several that match, the first counts.
type Quota struct {
	Match string // a pattern of package glob
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
		if !glob.Match(q.Match, model) {
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
