package stack

import (
	"fmt"
	"slices"
	"time"

	"github.com/kvstored/kvstored/internal/base"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/key"
)

// Quota bounds what the spaces whose model matches, all together, occupy in
// each bounded tier, how old their chunks become, and what these take to compute. Of
// several that match, the first counts.
type Quota struct {
	Match  string        // a pattern of package glob
	Bytes  int64         // 0: as much as there is room for
	MaxAge time.Duration // in whole seconds; 0: any
	// PrefillDepth is how many tokens into a prompt one takes twice as long to compute
	// as the first; 0: as usual.
	PrefillDepth int
}

// Bounded is the quotas of a list that the tiers are told of, in their order.
func Bounded(quotas []Quota) []Quota {
	return slices.DeleteFunc(slices.Clone(quotas), func(q Quota) bool { return q.Bytes == 0 })
}

// OpenSpace tells the store the model of a space. Only the id of a space is stored,
// so that until it is opened no quota counts what an earlier process left of
// it.
func (s *operator) OpenSpace(id key.SpaceID, model string) {
	s.quotas.Lock()
	defer s.quotas.Unlock()
	if most := maxAgeOf(s.quotas.list, model); s.ages.book.Open(id, most) {
		s.ages.stamp(id, most)
	}
	s.depths.begin(id, depthOf(s.quotas.list, model))
	i, ok := quotaOf(s.quotas.list, model)
	if !ok {
		return
	}
	for _, l := range s.levels.all {
		if l.Tunable != nil {
			l.Tunable.Assign(id, i)
		}
	}
	s.KeepQuotas()
}

// MaxAge is how old the chunks of a space that is open become; 0 for any age.
func (s *operator) MaxAge(id key.SpaceID) time.Duration { return s.ages.book.Most(id) }

// CloseSpace ends what OpenSpace began, once for each call of it.
func (s *operator) CloseSpace(id key.SpaceID) {
	s.ages.book.Close(id)
	s.depths.end(id)
}

// ruleOf is the place of the rule for a model; -1 for none.
func ruleOf(quotas []Quota, model string) int {
	return slices.IndexFunc(quotas, func(q Quota) bool { return base.Glob(q.Match, model) })
}

// quotaOf is the place of the quota that a model is under among those of Bounded.
func quotaOf(quotas []Quota, model string) (i int, ok bool) {
	rule := ruleOf(quotas, model)
	if rule < 0 || quotas[rule].Bytes == 0 {
		return 0, false
	}
	return len(Bounded(quotas[:rule])), true
}

// maxAgeOf is how old the chunks of a model become; 0 for any age.
func maxAgeOf(quotas []Quota, model string) time.Duration {
	if rule := ruleOf(quotas, model); rule >= 0 {
		return quotas[rule].MaxAge
	}
	return 0
}

// depthOf is the PrefillDepth of a model; 0 where no rule says one.
func depthOf(quotas []Quota, model string) int {
	if rule := ruleOf(quotas, model); rule >= 0 {
		return quotas[rule].PrefillDepth
	}
	return 0
}

// KeepQuotas has chunks evicted where a quota is exceeded, or a high watermark.
func (s *operator) KeepQuotas() {
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
	bounded, had := Bounded(quotas), Bounded(s.quotas.list)
	qs := make([]ledger.Requota, len(bounded))
	for i, q := range bounded {
		was := slices.IndexFunc(had, func(old Quota) bool { return old.Match == q.Match })
		qs[i] = ledger.Requota{Quota: ledger.Quota{Bytes: q.Bytes}, Was: was}
	}
	of := make(map[key.SpaceID]int)
	known := models()
	for id, model := range known {
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
	for id, model := range known {
		if most := maxAgeOf(quotas, model); s.ages.book.Bound(id, most) {
			s.ages.stamp(id, most)
		}
		s.depths.change(id, depthOf(quotas, model))
	}
	s.KeepQuotas()
	return nil
}
