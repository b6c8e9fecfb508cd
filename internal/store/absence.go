package store

import (
	"errors"
	"slices"

	"github.com/kvstored/kvstored/internal/explain"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/policy"
	"github.com/kvstored/kvstored/tier"
)

// absences notes which chunks are in no tier any more, and which ones a tier did not
// take, so that Why can tell, and for whom they went. Its locks are leaves.
type absences struct {
	evictLog *explain.EvictLog
	rivals   explain.Rivals
	levels   *levels
}

// policies are the names of which a note of an eviction has the number.
var policies = policy.All()

// left notes that p was the last tier to have k.
func (a *absences) left(p tier.Place, k key.Key, why explain.Reason) {
	if why != explain.Evicted {
		a.evictLog.Add(k, explain.Note{Reason: why, Tier: uint8(p)})
		return
	}
	chose := -1
	if b := a.levels.at[p].Bounded; b != nil {
		chose = slices.Index(policies, b.Ledger().PolicyName())
	}
	a.evictLog.Evict(k, uint8(p), uint8(chose+1), true)
	a.rivals.Gone(uint8(p), k.Space)
}

// refused notes that DRAM did not take a new chunk.
func (a *absences) refused(k key.Key, err error) {
	if why, ok := declineOf(err); ok {
		a.evictLog.DeclineNew(k, uint8(tier.CPU), uint8(why))
	}
}

// declineOf names the refusal of a reservation; false if it says nothing of the chunk.
func declineOf(err error) (explain.Decline, bool) {
	switch {
	case errors.Is(err, ErrNotAdmitted):
		return explain.Admission, true
	case errors.Is(err, tier.ErrOverQuota), errors.Is(err, ledger.ErrOverQuota):
		return explain.Quota, true
	case errors.Is(err, tier.ErrOverBudget), errors.Is(err, ledger.ErrOverBudget):
		return explain.Budget, true
	case errors.Is(err, tier.ErrNoSpace):
		return explain.Crowded, true
	}
	return 0, false
}

// Rivals is how many chunks of each space were evicted for each in the last hour.
func (l *Lookups) Rivals() map[explain.Rivalry]float64 { return l.absences.rivals.Pairs() }

// Why says why a lookup in the tiers of search ended before chunk i of c: what is
// true of the chunk now, or what became of it. Its reason is Nothing where c has no such
// chunk, or it is there. It holds locks for some microseconds,
// and asks no tier for anything but its memory.
func (l *Lookups) Why(c *key.Chain, i int, search tier.Set) explain.Absence {
	if i >= c.Len() {
		return explain.None
	}
	a := l.why(c.Key(i), search)
	a.Key = c.Key(i)
	return a
}

func (l *Lookups) why(k key.Key, search tier.Set) explain.Absence {
	switch {
	case l.distrusted.Has(k.Space):
		return explain.Because(explain.Distrusted)
	case l.ages.Expired(k): // and not removed yet
		return explain.Because(explain.Deleted)
	}
	unknown := l.levels.unscanned(search) // before the index: what a scan brings is there before it ends
	at, off := l.index.Where(k), l.levels.off()
	if p, ok := l.levels.nearestOf(at & search & off); ok && at&search&^off == 0 {
		return explain.Absence{Reason: explain.TierOff, Tier: uint8(p)}
	}
	if p, ok := l.levels.nearestOf(at &^ search); ok && at&search == 0 {
		return explain.Absence{Reason: explain.NotSearched, Tier: uint8(p)}
	}
	if at != 0 {
		return explain.None
	}
	if _, st := l.levels.hot.Ledger().Find(k); st == ledger.Filling {
		return explain.Because(explain.Pending)
	}
	if a := l.departed(k); a.Reason != explain.NeverStored {
		return a
	}
	if p, ok := l.levels.nearestOf(unknown); ok {
		return explain.Absence{Reason: explain.Scanning, Tier: uint8(p)}
	}
	if len(l.SpacesWith(k, 1)) > 0 { // hashes of spaces with other methods or salts never meet
		return explain.Because(explain.OtherSpace)
	}
	return explain.Because(explain.NeverStored)
}

// departed is what became of a chunk that no tier has.
func (l *Lookups) departed(k key.Key) explain.Absence {
	n := l.absences.evictLog.Find(k)
	a := explain.Absence{Reason: n.Reason, Tier: n.Tier, At: n.At}
	switch n.Reason {
	case explain.Nothing:
		return explain.Because(explain.NeverStored)
	case explain.Evicted:
		a.Since = l.absences.evictLog.Since(n)
		if at := int(n.Detail); at > 0 && at <= len(policies) {
			a.Policy = policies[at-1]
		}
	case explain.Declined:
		a.Why = explain.Decline(n.Detail)
	}
	return a
}

// mostElsewhere bounds in how many other spaces a missing chunk is looked for.
const mostElsewhere = 16

// SpacesWith lists at most so many spaces, among the first few that are known, in
// which some tier has a chunk of the tokens of k, but for k's own.
func (l *Lookups) SpacesWith(k key.Key, most int) []key.SpaceID {
	return l.index.spacesWith(k, most)
}
