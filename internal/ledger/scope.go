package ledger

import "github.com/kvstored/kvstored/policy"

// scope is some of the entries and the order in which they go: all entries, besides those
// that are claimed, and those under one quota.
type scope struct {
	policy  policy.Policy
	planner planner        // the same, if it wants to be told of requests
	leaver  policy.Leaver  // the same, if it keeps ghosts
	renewer policy.Renewer // the same, if recency has a part in its order
	silent  bool           // it is told of nothing else: neither of touches nor of what comes
	under   line           // what may go though others stand on it

	quota QuotaStats // of all but the first
}

// The scopes of all entries, and of those that are claimed, which have half of the tier for
// a quota; those of other quotas follow.
const everything, claims, firstQuota = 0, 1, 2

func (r *scope) miss(hash uint64, size int64) {
	if !r.silent {
		r.policy.Miss(hash, size)
	}
}
