package ledger

import "github.com/kvstored/kvstored/policy"

// rank is one order in which entries go: that of all entries, or that of the
// entries under one quota, which are in both.
type rank struct {
	policy  policy.Policy
	planner planner // the same, if it wants to be told of requests
	silent  bool    // it is told of nothing else: neither of touches nor of what comes
	under   line    // what may go though others stand on it

	quota    QuotaStats // of the second kind
	priority uint8      // the same
}

// everything is the rank of all entries; those of quotas follow.
const everything = 0

func (r *rank) miss(hash uint64, size int64) {
	if !r.silent {
		r.policy.Miss(hash, size)
	}
}
