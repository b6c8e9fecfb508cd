package ledger_test

import (
	"slices"

	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/key"
)

// model is a ledger as one would write it down: maps, every sum and every
// question answered from scratch, and the reference models of the policies.
type model struct {
	*ranking
	limits ledger.Limits
	most   int               // entries there may be; 0 = any number
	works  ledger.Below      // tiers below
	live   map[key.Key]*body // filling and resident
	dead   []*body           // gone
	owners map[ledger.Owner]map[ledger.Class]int64
}

// body is one entry with bytes.
type body struct {
	entry      ledger.Entry
	parent     key.Hash
	state      ledger.State
	holds      map[holder]int
	filler     holder
	freed      bool
	fresh      bool // published to be used, and not used yet
	claimed    bool
	dropBehind bool // the prompt has come by here
	// charged says of a victim that its writer has the room for it.
	charged bool
	// undead is set while a removed body still stands for the missing
	// parent of its kids, so that its key cannot be filled again.
	undead bool
}

type holder struct {
	o ledger.Owner
	c ledger.Class
}

var classes = []ledger.Class{ledger.Lease, ledger.Pin, ledger.Load, ledger.Unwritten, ledger.IO}

func newModel(name string, limits ledger.Limits, most int) *model {
	return &model{
		ranking: newRanking(name),
		limits:  limits,
		most:    most,
		live:    make(map[key.Key]*body),
		owners:  map[ledger.Owner]map[ledger.Class]int64{ledger.Daemon: {}},
	}
}

func occupied(size uint32) int64 { return (int64(size) + 4095) / 4096 * 4096 }

// up is the live parent of e.
func (m *model) up(e *body) *body {
	return m.live[key.Key{Space: e.entry.Key.Space, Hash: e.parent}]
}

func (m *model) hasKids(k key.Key) bool { return m.kids(k) > 0 }

func (m *model) kids(k key.Key) (n int) {
	for _, e := range m.live {
		if e.entry.Key.Space == k.Space && e.parent == k.Hash {
			n++
		}
	}
	return n
}

func (m *model) protectedLive() map[*body]bool {
	set := make(map[*body]bool)
	for _, e := range m.live {
		if e.state == ledger.Filling || len(e.holds) > 0 {
			set[e] = true
			for e = m.up(e); e != nil && e.entry.Below == 0; e = m.up(e) { // where a tier below stands in, it ends
				set[e] = true
			}
		}
	}
	return set
}

func (m *model) protectedBytes() (n int64) {
	for e := range m.protectedLive() {
		n += occupied(e.entry.Size)
	}
	for _, e := range m.dead {
		if len(e.holds) > 0 {
			n += occupied(e.entry.Size)
		}
	}
	return n + m.charged()
}

func (m *model) charged() (n int64) {
	for _, by := range m.owners {
		for _, c := range classes {
			n += by[c]
		}
	}
	return n
}

// bodies calls yield for all, dead or alive.
func (m *model) bodies(yield func(*body) bool) {
	for _, e := range m.live {
		if !yield(e) {
			return
		}
	}
	for _, e := range m.dead {
		if !yield(e) {
			return
		}
	}
}

// of sums what o is charged for in c.
func (m *model) of(h holder) int64 {
	n := m.owners[h.o][h.c]
	for e := range m.bodies {
		if e.holds[h] > 0 {
			n += occupied(e.entry.Size)
		}
	}
	return n
}

// class sums c, each body once.
func (m *model) class(c ledger.Class) (n int64) {
	for _, by := range m.owners {
		n += by[c]
	}
	for e := range m.bodies {
		for h := range e.holds {
			if h.c == c {
				n += occupied(e.entry.Size)
				break
			}
		}
	}
	return n
}

// only says whether no owner but o holds anything.
func (m *model) only(o ledger.Owner) bool {
	for e := range m.bodies {
		for h := range e.holds {
			if h.o != o {
				return false
			}
		}
	}
	for other, by := range m.owners {
		for _, n := range by {
			if other != o && n > 0 {
				return false
			}
		}
	}
	return true
}

// refusal judges a change that was tried: what the sums were, and are now.
func (m *model) refusal(h holder, before, after sums) error {
	if h.c == ledger.IO {
		return nil
	}
	limit := map[ledger.Class]int64{
		ledger.Lease: m.limits.Lease, ledger.Pin: m.limits.Pin,
		ledger.Load: m.limits.Load, ledger.Unwritten: m.limits.Unwritten,
	}[h.c]
	most := limit
	if len(m.owners) > 2 {
		most = limit / 2
	}
	wait := func(need, limit int64) error {
		if need > limit || h.o != ledger.Daemon && before.only {
			return ledger.ErrOverBudget
		}
		return ledger.ErrBusy
	}
	over := func(before, after, limit int64) bool { return limit > 0 && after > before && after > limit }
	need := after.class - before.class
	switch one := need > limit && before.class < limit; h.c {
	case ledger.Load:
		if need = min(need, limit); before.class == 0 {
			limit, most = 0, 0 // one is always let in
		}
	case ledger.Unwritten:
		if need = min(need, limit); one {
			limit, most = 0, 0 // it is the last
		}
	}
	switch {
	case h.o != ledger.Daemon && over(before.own, after.own, most):
		return ledger.ErrOverBudget
	case over(before.class, after.class, limit):
		return wait(need, limit)
	case h.c == ledger.Unwritten && before.class == 0:
	case over(before.total, after.total, m.limits.Total):
		return wait(after.own-before.own, m.limits.Total)
	}
	return nil
}

type sums struct {
	own, class, total int64
	only              bool
}

func (m *model) sums(h holder) sums {
	return sums{m.of(h), m.class(h.c), m.protectedBytes(), m.only(h.o)}
}

// try does something that charges h, and undoes it if a budget refuses.
func (m *model) try(h holder, do, undo func()) error {
	before := m.sums(h)
	do()
	err := m.refusal(h, before, m.sums(h))
	if err != nil {
		undo()
	}
	return err
}

// cyclic says whether parent is k or below it.
func (m *model) cyclic(k key.Key, parent key.Hash) bool {
	for parent != (key.Hash{}) {
		if parent == k.Hash {
			return true
		}
		e := m.live[key.Key{Space: k.Space, Hash: parent}]
		if e == nil {
			return false
		}
		parent = e.parent
	}
	return false
}

// full says whether one more entry would be one too many, or the hole it needs.
func (m *model) full(e *body) bool {
	m.live[e.entry.Key] = e
	defer delete(m.live, e.entry.Key)
	return m.most > 0 && len(m.live)+len(m.dead)+m.stats().Holes > m.most
}

func (m *model) begin(h holder, k key.Key, parent key.Hash, size uint32) (ledger.State, error) {
	if e := m.live[k]; e != nil {
		return e.state, nil
	}
	for _, e := range m.dead {
		if e.entry.Key == k && e.undead {
			return ledger.Absent, ledger.ErrBusy
		}
	}
	if m.cyclic(k, parent) {
		parent = key.Hash{}
	}
	if m.owns(k) && occupied(size) > quotaPages*page {
		m.refused++
		return ledger.Absent, ledger.ErrOverQuota
	}
	e := &body{
		entry: ledger.Entry{Key: k, Parent: parent, Size: size}, parent: parent,
		state: ledger.Filling, filler: h, holds: map[holder]int{h: 1},
	}
	if m.full(e) {
		return ledger.Absent, ledger.ErrFull
	}
	err := m.try(h, func() { m.live[k] = e }, func() { delete(m.live, k) })
	if err == nil {
		m.admit(k, size)
	}
	return ledger.Absent, err
}

func (e *body) unhold(h holder) {
	if e.holds[h]--; e.holds[h] == 0 {
		delete(e.holds, h)
	}
}

// publish ends the fills of one chain; the leading run that fits is held by
// keep, if any.
func (m *model) publish(es []*body, dirty bool, keep *holder) (held int, err error) {
	m.enlist(es)
	for _, e := range es {
		e.entry.Dirty, e.fresh = dirty, keep != nil
		if keep != nil && err == nil {
			if err = m.hold(*keep, e); err == nil {
				held++
			}
		}
		e.unhold(e.filler)
	}
	return held, err
}

func (m *model) hold(h holder, e *body) error {
	return m.try(h, func() { e.holds[h]++ }, func() { e.unhold(h) })
}

// touch marks a chain as used.
func (m *model) touch(es []*body) {
	m.renewPending()
	for i := len(es) - 1; i >= 0; i-- {
		es[i].dropBehind = false
		if es[i].fresh {
			es[i].fresh = false
			m.renew(es[i])
			continue
		}
		es[i].entry.Hits = min(es[i].entry.Hits+1, ledger.MaxHits)
		m.ranking.touch(es[i])
	}
}

func (m *model) evictable(e *body) bool {
	return e.state == ledger.Resident && len(e.holds) == 0 && !m.hasKids(e.entry.Key)
}

// evictableInterior says whether e may go where nothing else may.
func (m *model) evictableInterior(e *body) bool {
	return e.state == ledger.Resident && len(e.holds) == 0 && m.hasKids(e.entry.Key) && e.entry.Below&m.works != 0
}

func (m *model) endResidency(e *body) {
	m.unlink(e)
	delete(m.live, e.entry.Key)
	m.dead = append(m.dead, e)
	e.claimed, e.dropBehind = false, false
	e.undead = m.hasKids(e.entry.Key)
}

// tidy forgets the dead entries that are freed and not held, after each step.
func (m *model) tidy() {
	for _, e := range m.dead {
		e.undead = e.undead && m.hasKids(e.entry.Key)
	}
	m.dead = slices.DeleteFunc(m.dead, func(e *body) bool { return e.freed && len(e.holds) == 0 })
}

// stats is what the ledger should say.
func (m *model) stats() (s ledger.Stats) {
	missing := make(map[key.Key]bool)
	for _, e := range m.live {
		s.UsedBytes += occupied(e.entry.Size)
		if e.state == ledger.Filling {
			s.Filling++
		} else {
			s.Entries++
			if e.claimed {
				s.ClaimedBytes += occupied(e.entry.Size)
			}
			if e.entry.Dirty {
				s.DirtyEntries++
				s.DirtyBytes += int64(e.entry.Size)
			}
		}
		parent := key.Key{Space: e.entry.Key.Space, Hash: e.parent}
		if e.parent != (key.Hash{}) && m.live[parent] == nil {
			missing[parent] = true
		}
	}
	for _, e := range m.dead {
		s.UsedBytes += occupied(e.entry.Size)
		if len(e.holds) == 0 {
			s.LeavingBytes += occupied(e.entry.Size)
		}
		if e.undead {
			delete(missing, e.entry.Key)
		}
	}
	s.Holes = len(missing)
	s.UsedBytes += m.charged()
	s.ProtectedBytes = m.protectedBytes()
	s.EvictableBytes = s.UsedBytes - s.ProtectedBytes - s.LeavingBytes
	for _, c := range classes {
		s.ClassBytes[c] = m.class(c)
	}
	s.Owners = len(m.owners) - 1
	return s
}
