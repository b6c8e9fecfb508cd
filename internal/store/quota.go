package store

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
func (s *Operator) OpenSpace(id key.SpaceID, model string) {
	s.quotas.Lock()
	defer s.quotas.Unlock()
	rule, i := ruleOf(s.quotas.list, model)
	if s.ages.book.Open(id, rule.MaxAge) {
		s.ages.shorten(id, rule.MaxAge)
	}
	s.depths.begin(id, rule.PrefillDepth)
	if i < 0 {
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
func (s *Operator) MaxAge(id key.SpaceID) time.Duration { return s.ages.book.TTL(id) }

// CloseSpace ends what OpenSpace began, once for each call of it.
func (s *Operator) CloseSpace(id key.SpaceID) {
	s.ages.book.Close(id)
	s.depths.end(id)
}

// ruleOf is the rule for a model, the zero Quota where there is none, and its place among
// those of Bounded; -1 where it bounds no bytes.
func ruleOf(quotas []Quota, model string) (q Quota, bounded int) {
	i := slices.IndexFunc(quotas, func(q Quota) bool { return base.Glob(q.Match, model) })
	switch {
	case i < 0:
		return q, -1
	case quotas[i].Bytes == 0:
		return quotas[i], -1
	}
	return quotas[i], len(Bounded(quotas[:i]))
}

// KeepQuotas has chunks evicted where a quota is exceeded, or a high watermark.
func (s *Operator) KeepQuotas() { s.writers.KeepWatermarks() }

// SetQuotas replaces the quotas while the store runs. models names the models of
// the spaces that are known; others are under no quota until they are opened
// again. A quota whose Match was there before keeps its counts. While entries
// change quotas, 4,096 at a time, none is enforced, and OpenSpace waits.
func (s *Operator) SetQuotas(quotas []Quota, models func() map[key.SpaceID]string) error {
	s.quotas.Lock()
	defer s.quotas.Unlock()
	if slices.Equal(quotas, s.quotas.list) {
		return nil
	}
	bounded, had := Bounded(quotas), Bounded(s.quotas.list)
	qs := make([]ledger.QuotaChange, len(bounded))
	for i, q := range bounded {
		was := slices.IndexFunc(had, func(old Quota) bool { return old.Match == q.Match })
		qs[i] = ledger.QuotaChange{Quota: ledger.Quota{Bytes: q.Bytes}, Was: was}
	}
	of := make(map[key.SpaceID]int)
	known := models()
	for id, model := range known {
		if _, i := ruleOf(quotas, model); i >= 0 {
			of[id] = i
		}
	}
	for _, l := range s.levels.all {
		if l.Tunable != nil {
			if err := l.Tunable.SetQuotas(qs, of); err != nil {
				return fmt.Errorf("quotas: %w", err)
			}
		}
	}
	s.quotas.list = quotas
	for id, model := range known {
		rule, _ := ruleOf(quotas, model)
		if s.ages.book.SetTTL(id, rule.MaxAge) {
			s.ages.shorten(id, rule.MaxAge)
		}
		s.depths.change(id, rule.PrefillDepth)
	}
	s.KeepQuotas()
	return nil
}
