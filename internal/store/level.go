package store

import (
	"cmp"
	"fmt"
	"sync/atomic"

	"github.com/kvstored/kvstored/internal/index"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/internal/writeback"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

// Below is one tier below DRAM.
type Below struct {
	Place tier.Place
	Tier  tier.Tier
	// Loads bounds what the tier is asked for at a time; loads beyond that take
	// turns. No loads means usualLoads.
	Loads tier.Limit
}

// usualLoads keeps a local disk busy, two pieces of 1 MiB at a time, and makes
// the next client wait for 32 MiB at most: some 15 ms.
var usualLoads = tier.Limit{Loads: 32, Bytes: 32 << 20}

// usualBytes is what a chunk is taken to have before a tier has told of one.
const usualBytes = 1 << 20

// level is one tier of a store, with all that the store keeps for it. Its roles
// are resolved once, here.
type level struct {
	writeback.Tier
	rank   int      // 0 is DRAM
	beyond tier.Set // the tiers behind it
	scan   scan

	// What follows is of tiers below DRAM only.
	writer    *writeback.Writer
	admission *tier.Queue  // who loads next
	usual     atomic.Int64 // bytes of the last chunk that was promoted
	speed     speedometer
	loads     writeback.Counter // promoted to DRAM
	failed    atomic.Uint64
}

// openings is how often the tier was opened, 1 if it is once for all.
func (l *level) openings() uint64 {
	if l.Reopener == nil {
		return 1
	}
	return l.Reopener.Openings()
}

// knowsLoss reports whether it is known what the tier has lost where it was opened
// again. The first opening loses nothing that was stored since the start.
func (l *level) knowsLoss() bool {
	n := l.openings()
	return n <= 1 || n == l.scan.covered.Load()
}

// setBelow tells the tier's ledger whether tiers below have k now.
func (l *level) setBelow(k key.Key, tiers tier.Set, have bool) {
	l.Bounded.Ledger().SetBelow(k, ledger.Below(tiers), have)
}

// levels is the tiers of a store, nearest first.
type levels struct {
	hot   tier.Hot
	all   []*level            // DRAM, and those below
	below []*level            // without DRAM
	at    [tier.Places]*level // by place; nil where there is none
	// nearest is the nearest tier of each set, Places for a set without any.
	nearest [1 << tier.Places]tier.Place
}

func newLevels(hot tier.Hot, below []Below) *levels {
	ls := &levels{hot: hot}
	ls.add(&level{Tier: writeback.Tier{Tier: hot, Place: tier.CPU}})
	for _, b := range below {
		l := &level{Tier: writeback.Tier{Tier: b.Tier, Place: b.Place}, admission: tier.NewQueue(cmp.Or(b.Loads, usualLoads))}
		l.usual.Store(usualBytes)
		ls.add(l)
	}
	ls.below = ls.all[1:]
	ls.nearest = ls.order()
	for _, l := range ls.all {
		if l.Bounded != nil && l.beyond != 0 {
			l.Tunable.StackOn(func() ledger.Below { return ledger.Below(l.beyond &^ ls.off()) })
		}
	}
	return ls
}

// targets is the tiers below DRAM for their writers.
func (ls *levels) targets() (out []*writeback.Tier) {
	for _, l := range ls.below {
		out = append(out, &l.Tier)
	}
	return out
}

// add puts a tier behind all others.
func (ls *levels) add(l *level) {
	if ls.at[l.Place] != nil {
		panic("store: two tiers in the place " + l.Place.String())
	}
	l.Roles, l.rank = tier.RolesOf(l.Tier.Tier), len(ls.all)
	l.Scanning, l.KnowsLoss = l.scan.running.Load, l.knowsLoss
	if l.Recoverer != nil && l.rank > 0 {
		l.scan.begin()
	}
	for _, nearer := range ls.all {
		nearer.beyond |= tier.Of(l.Place)
	}
	ls.all = append(ls.all, l)
	ls.at[l.Place] = l
}

// order is the nearest tier of each set.
func (ls *levels) order() (nearest [1 << tier.Places]tier.Place) {
	for set := range nearest {
		nearest[set] = tier.Places
		for i := len(ls.all) - 1; i >= 0; i-- {
			if p := ls.all[i].Place; tier.Set(set).Has(p) {
				nearest[set] = p
			}
		}
	}
	return nearest
}

// nearestOf is the nearest tier of a set; false for a set without any.
func (ls *levels) nearestOf(set tier.Set) (p tier.Place, ok bool) {
	p = ls.nearest[set&tier.All]
	return p, p < tier.Places
}

// those is the tiers of which something is true.
func (ls *levels) those(is func(*level) bool) (set tier.Set) {
	for _, l := range ls.all {
		if is(l) {
			set |= tier.Of(l.Place)
		}
	}
	return set
}

// off is the tiers that are switched off.
func (ls *levels) off() tier.Set { return ls.those(func(l *level) bool { return l.Off() }) }

// own is the tiers of this machine.
func (ls *levels) own() tier.Set { return ls.those(func(l *level) bool { return !l.IsShared() }) }

// first is the nearest level below DRAM that has a role; nil if none has.
func (ls *levels) first(has func(*level) bool) *level {
	for _, l := range ls.below {
		if has(l) {
			return l
		}
	}
	return nil
}

// far is the level that others use too, and that can be asked; nil if there is
// none.
func (ls *levels) far() *level {
	return ls.first(func(l *level) bool { return l.Shared != nil })
}

// told follows up on a change of what tier p has: at is where the index has k
// now. It is called with the index's lock held, so that the last to call it
// leaves the truth behind, as index.sync does.
func (ls *levels) told(p tier.Place, k key.Key, at tier.Set) {
	changed := ls.at[p]
	for _, l := range ls.all[:changed.rank+1] {
		switch {
		case l.Bounded == nil:
		case l != changed:
			l.setBelow(k, tier.Of(p), at.Has(p))
		case at.Has(p) && at&l.beyond != 0:
			l.setBelow(k, at&l.beyond, true)
		}
	}
}

// needed tells the tiers what usable prefixes need, or do not any more. It is called with
// the index's lock held.
func (ls *levels) needed(told []index.Need) {
	for _, n := range told {
		for _, l := range ls.all {
			if l.Bounded != nil {
				ledger.Need(l.Bounded.Ledger(), n.Key, n.Full, n.Needed)
			}
		}
	}
}

// behind reports whether p is behind the nearest tier of a set.
func (ls *levels) behind(p tier.Place, set tier.Set) bool {
	q, ok := ls.nearestOf(set)
	return ok && ls.at[p].rank > ls.at[q].rank
}

// scanned is an error while a tier of a set may have what the index does not know.
func (ls *levels) scanned(in tier.Set) error {
	if p, ok := ls.nearestOf(ls.unscanned(in)); ok {
		return fmt.Errorf("the %s tier is still being scanned; try again when it is ready: %w", p, tier.ErrOff)
	}
	return nil
}

// unscanned is the tiers of a set of which no scan has come to its end yet.
func (ls *levels) unscanned(in tier.Set) tier.Set {
	return in & ls.those(func(l *level) bool { return l.scan.unknown.Load() })
}

// scanning is the tiers that are being scanned for the first time.
func (ls *levels) scanning() tier.Set {
	return ls.those(func(l *level) bool { return l.scan.running.Load() })
}

// sizeOf is how large a chunk is; 0 where no tier of this machine can say at once.
func (ls *levels) sizeOf(k key.Key) uint32 {
	if e, st := ls.hot.Ledger().Find(k); st == ledger.Resident {
		return e.Size
	}
	for _, l := range ls.below {
		if l.Summed != nil {
			if _, size, known := l.Summed.Sum(k); known {
				return size
			}
		}
	}
	return 0
}
