package tier

import (
	"fmt"
	"slices"

	"github.com/kvstored/kvstored/internal/glob"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/key"
)

// Quota bounds what the spaces whose model matches, all together, occupy in
// each bounded tier. Of several that match, the first counts.
type Quota struct {
	Match string // a pattern of package glob
	Bytes int64
	// Priority is how often a chunk of theirs is spared when it would go.
	Priority int
}

// Quoted is a bounded tier that keeps quotas.
type Quoted interface {
	// Assign puts a space under a quota, given by its place in the tier's
	// options. Calls for a space that is under one change nothing.
	Assign(space key.SpaceID, quota int)
	// Requote replaces the quotas, those of the tier's options, and what Assign
	// said: see ledger.Ledger.Requote.
	Requote(qs []ledger.Requota, under map[key.SpaceID]int) error
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
	s.quotas.Lock()
	defer s.quotas.Unlock()
	i, ok := quotaOf(s.quotas.list, model)
	if !ok {
		return
	}
	for _, t := range s.tiers {
		if t, ok := under[Quoted](t); ok {
			t.Assign(id, i)
		}
	}
	s.keepQuotas()
}

// quotaOf is the place of the quota that a model is under.
func quotaOf(quotas []Quota, model string) (i int, ok bool) {
	i = slices.IndexFunc(quotas, func(q Quota) bool { return glob.Match(q.Match, model) })
	return i, i >= 0
}

// keepQuotas has what is over a quota go.
func (s *Stack) keepQuotas() {
	s.filled()
	for _, w := range s.writers {
		w.filled()
	}
}

// SetQuotas replaces the quotas while the Stack runs. models names the models of
// the spaces that are known; others are under no quota until they are opened
// again. A quota whose Match was there before keeps its counts. While entries
// change quotas, 4,096 at a time, none is enforced, and OpenSpace waits.
func (s *Stack) SetQuotas(quotas []Quota, models func() map[key.SpaceID]string) error {
	s.quotas.Lock()
	defer s.quotas.Unlock()
	if slices.Equal(quotas, s.quotas.list) {
		return nil
	}
	qs := make([]ledger.Requota, len(quotas))
	for i, q := range quotas {
		was := slices.IndexFunc(s.quotas.list, func(old Quota) bool { return old.Match == q.Match })
		qs[i] = ledger.Requota{Quota: ledger.Quota{Bytes: q.Bytes, Priority: q.Priority}, Was: was}
	}
	of := make(map[key.SpaceID]int)
	for id, model := range models() {
		if i, ok := quotaOf(quotas, model); ok {
			of[id] = i
		}
	}
	for _, t := range s.tiers {
		if t, ok := under[Quoted](t); ok {
			if err := t.Requote(qs, of); err != nil {
				return fmt.Errorf("quotas: %w", err)
			}
		}
	}
	s.quotas.list = quotas
	s.keepQuotas()
	return nil
}
