package stack

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

// OpenSpace tells the store the model of a space. Only the id of a space is stored,
// so that until it is opened no quota counts what an earlier process left of
// it.
func (s *operator) OpenSpace(id key.SpaceID, model string) {
	s.quotas.Lock()
	defer s.quotas.Unlock()
	i, ok := quotaOf(s.quotas.list, model)
	if !ok {
		return
	}
	for _, l := range s.levels.all {
		if l.Tunable != nil {
			l.Tunable.Assign(id, i)
		}
	}
	s.keepQuotas()
}

// quotaOf is the place of the quota that a model is under.
func quotaOf(quotas []Quota, model string) (i int, ok bool) {
	i = slices.IndexFunc(quotas, func(q Quota) bool { return glob.Match(q.Match, model) })
	return i, i >= 0
}

// keepQuotas has chunks evicted where a quota is exceeded.
func (s *operator) keepQuotas() {
	s.filled()
	for _, l := range s.levels.below {
		l.writer.filled()
	}
}

// SetQuotas replaces the quotas while the store runs. models names the models of
// the spaces that are known; others are under no quota until they are opened
// again. A quota whose Match was there before keeps its counts. While entries
// change quotas, 4,096 at a time, none is enforced, and OpenSpace waits.
func (s *operator) SetQuotas(quotas []Quota, models func() map[key.SpaceID]string) error {
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
	for _, l := range s.levels.all {
		if l.Tunable != nil {
			if err := l.Tunable.Requote(qs, of); err != nil {
				return fmt.Errorf("quotas: %w", err)
			}
		}
	}
	s.quotas.list = quotas
	s.keepQuotas()
	return nil
}
