package tier

import "github.com/kvstored/kvstored/key"

// Upper is a bounded tier that keeps no whole prefixes of its own where a tier
// below makes up for it: what that has may leave before what stands on it. So
// a prompt may be longer than the tier.
type Upper interface {
	Resident
	// StandOn says which tiers below the tier can rely on now: works is
	// called without locks. It is called once, before the tier is used.
	StandOn(works func() Set)
	// Below says whether some tiers below have k. It is memory only.
	Below(k key.Key, tiers Set, have bool)
}

// stand makes the bounded tiers stand on those below them.
func (s *Stack) stand() {
	below := Set(0)
	for p := Places - 1; p < Places; p-- { // it wraps around
		if u, ok := under[Upper](s.tiers[p]); ok && below != 0 {
			s.uppers[p] = u
			u.StandOn(func() Set { return below &^ s.off() })
		}
		if s.tiers[p] != nil {
			below |= Of(p)
		}
	}
}

// stood follows up on a change of what tier p has: at is where the index has
// k now. It is called with the index's lock held, so that the last to call it
// leaves the truth behind, as Stack.settle does.
func (s *Stack) stood(p Place, k key.Key, at Set) {
	for q, u := range s.uppers[:p+1] {
		switch {
		case u == nil:
		case Place(q) < p:
			u.Below(k, Of(p), at.Has(p))
		case at.Has(p) && at.beyond(p) != 0:
			u.Below(k, at.beyond(p), true)
		}
	}
}

// Passed says that a client has done with chunks from..to of c for now, which
// has read or stored them. What is longer than DRAM then makes room for the rest
// of itself, and not other prompts: bytes is what one of its chunks takes.
func (s *Stack) Passed(c *key.Chain, from, to int, bytes int64) {
	if c.Alone || to <= from || int64(c.Len())*bytes <= s.room {
		return
	}
	s.hot.Ledger().Pass(c.Space, c.Hashes[from:to])
}

// beyond is those of s that are farther than p.
func (s Set) beyond(p Place) Set { return s &^ (2<<p - 1) }
