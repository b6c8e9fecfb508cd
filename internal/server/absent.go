package server

import (
	"time"

	"github.com/kvstored/kvstored/internal/access"
	"github.com/kvstored/kvstored/internal/missing"
	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/key"
)

// absentCodes are the reasons as clients are told them.
var absentCodes = map[missing.Reason]wire.Code{
	missing.NeverStored: wire.CodeNeverStored,
	missing.Evicted:     wire.CodeEvicted,
	missing.Declined:    wire.CodeDeclined,
	missing.Deleted:     wire.CodeNotFound,
	missing.OtherSpace:  wire.CodeOtherSpace,
	missing.TierOff:     wire.CodeTierOff,
	missing.Corrupt:     wire.CodeCorrupt,
	missing.Gap:         wire.CodeGap,
	missing.Pending:     wire.CodePending,
	missing.Scanning:    wire.CodeStarting,
	missing.NotSearched: wire.CodeExists,
	missing.Group:       wire.CodeGroup,
}

// absent is what the session is told of the first chunk that a prompt lacks; nil where it
// did not ask, or nothing is missing. at is the number of that chunk in c.
func absent(r *reader, o *wire.Shared, c *key.Chain, at int, why func() missing.Absence) *wire.Missing {
	if !o.Why {
		return nil
	}
	a := why()
	code, ok := absentCodes[a.Reason]
	if !ok {
		return nil
	}
	if code == wire.CodeOtherSpace && !mayReadElsewhere(r, c.Key(at)) {
		code = wire.CodeNeverStored
	}
	m := &wire.Missing{Code: code, Ago: wire.NotKnown}
	if int(a.Tier) < wire.TierCount {
		m.Tier = 1 << a.Tier
	}
	if left := a.Time(); !left.IsZero() {
		m.Ago = uint32(max(0, time.Since(left).Seconds()))
	}
	return m
}

// mayReadElsewhere reports whether the session may read one of the other spaces that have a
// chunk of the same tokens. Of others it is not told.
func mayReadElsewhere(r *reader, k key.Key) bool {
	if r.judged.everywhere&access.Read != 0 {
		return true
	}
	for _, id := range r.server.o.Stack.SpacesWith(k, mostNearest) {
		if m := r.server.catalog.space(id).Model; m != "" && r.judged.policy.Model(r.uid, m)&access.Read != 0 {
			return true
		}
	}
	return false
}
