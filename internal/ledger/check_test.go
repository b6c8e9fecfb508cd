package ledger

import (
	"fmt"

	"github.com/kvstored/kvstored/key"
)

// Check recomputes everything the ledger counts from its entries and holds,
// and says what differs. It is for tests: it takes the lock for long.
func (l *Ledger) Check() error {
	b := l.mu.lock()
	defer l.mu.unlock()
	sum := audit{book: b, kids: make(map[uint32]uint32), shields: make(map[uint32]uint32), held: make(map[uint32][classes]uint16), spaces: make(map[uint32]Occupancy)}
	return sum.run()
}

// audit is what Check recomputes.
type audit struct {
	book    *book
	kids    map[uint32]uint32
	shields map[uint32]uint32
	held    map[uint32][classes]uint16
	count   Stats
	spaces  map[uint32]Occupancy
	indexed uint32
	guards  int
	used    int // entries in any life
	claimed int64
}

func (a *audit) run() error {
	b := a.book
	if err := a.holds(); err != nil {
		return err
	}
	for id := uint32(1); id < b.entries.Len(); id++ {
		if e := b.entries.At(id); e.parent != 0 {
			a.kids[e.parent]++
			if b.protected(e) {
				a.shields[e.parent]++
			}
		}
	}
	for id := uint32(1); id < b.entries.Len(); id++ {
		if err := a.entry(id); err != nil {
			return fmt.Errorf("ledger: entry %d: %w", id, err)
		}
	}
	if err := a.quotas(); err != nil {
		return err
	}
	got, want := b.count, a.count
	got.CapacityBytes, got.Evictions, got.EvictedBytes, got.EvictedUnused, got.EvictedUnusedBytes = 0, 0, 0, 0, 0
	want.UsedBytes += b.budgets.extra
	want.ProtectedBytes += b.budgets.extra
	want.AsideEntries, want.AsideBytes = got.AsideEntries, got.AsideBytes
	for c := range want.ClassBytes { // charges, also for what is put aside, are in the owners' sums only
		want.ClassBytes[c] = got.ClassBytes[c]
	}
	if got != want {
		return fmt.Errorf("ledger: counted %+v, found %+v", got, want)
	}
	if a.used != b.entries.Used() || a.used > b.most {
		return fmt.Errorf("ledger: counted %d entries in use, of at most %d, found %d", b.entries.Used(), b.most, a.used)
	}
	if err := a.lines(); err != nil {
		return err
	}
	if a.indexed != b.index.Len() {
		return fmt.Errorf("ledger: %d entries should be indexed, %d are", a.indexed, b.index.Len())
	}
	if a.guards != b.guards.Used() {
		return fmt.Errorf("ledger: %d guards in use, of %d", a.guards, b.guards.Used())
	}
	return nil
}

// lines looks for what may go and is not in line.
func (a *audit) lines() error {
	b := a.book
	for id := uint32(1); id < b.entries.Len(); id++ {
		e := b.entries.At(id)
		if e.mark&cooled != 0 && b.evictable(e) && !e.claimed && *b.order.cold.link(id) == 0 {
			return fmt.Errorf("ledger: entry %d is to go first, and is not in line", id)
		}
		if !b.evictableInterior(e) {
			continue
		}
		missing := false
		b.policies.inScopes(e, func(r *scope) { missing = missing || *r.interior.link(id) == 0 })
		if missing {
			return fmt.Errorf("ledger: entry %d may go although it has kids, and is not in line", id)
		}
	}
	return nil
}

// holds recounts the holds of owners and entries.
func (a *audit) holds() error {
	b := a.book
	records := make([]uint32, len(b.budgets.owners))
	live := uint32(0)
	for rec := uint32(1); rec < b.budgets.holds.recs.Len(); rec++ {
		r := b.budgets.holds.recs.At(rec)
		if r.n == 0 {
			continue
		}
		live++
		if b.budgets.holds.find(r.entry, r.who) != rec {
			return fmt.Errorf("ledger: hold %d cannot be found", rec)
		}
		h := a.held[r.entry]
		h[r.who%classes]++
		a.held[r.entry] = h
		records[r.who/classes]++
	}
	if live != b.budgets.holds.index.Len() {
		return fmt.Errorf("ledger: %d holds, %d indexed", live, b.budgets.holds.index.Len())
	}
	for o := range b.budgets.owners {
		if b.budgets.owners[o].holds != records[o] {
			return fmt.Errorf("ledger: owner %d has %d holds, counted %d", o, records[o], b.budgets.owners[o].holds)
		}
	}
	return nil
}

// quotas compares what spaces, and the quotas they are under, occupy.
func (a *audit) quotas() error {
	b := a.book
	under := make(map[uint32]int64)
	for slot := range b.spaces.slots.Len() {
		sp := b.spaces.slots.At(slot)
		if sp.refs == 0 {
			continue
		}
		if have, found := (Occupancy{int(sp.here), sp.bytes, sp.cold}), a.spaces[slot]; have != found || sp.quota != b.spaces.quotas[sp.id] {
			return fmt.Errorf("ledger: space %x has %+v under quota %d, found %+v under %d", sp.id, have, sp.quota, found, b.spaces.quotas[sp.id])
		}
		under[sp.quota] += sp.bytes
	}
	for q, r := range b.policies.scopes {
		if q == claims {
			under[claims] = a.claimed
		}
		if q != everything && r.quota.UsedBytes != under[uint32(q)] {
			return fmt.Errorf("ledger: quota %d counts %d bytes, found %d", q, r.quota.UsedBytes, under[uint32(q)])
		}
	}
	return nil
}

// entry recounts one entry.
func (a *audit) entry(id uint32) error {
	e := a.book.entries.At(id)
	if err := a.guard(id, e); err != nil || e.life == unused {
		return err
	}
	if e.life == hole && (e.kids == 0 || e.size != 0 || e.parent != 0) {
		return fmt.Errorf("a hole with %d kids, %d bytes, parent %d", e.kids, e.size, e.parent)
	}
	a.add(e)
	return a.ways(id, e)
}

// guard compares what protects an entry.
func (a *audit) guard(id uint32, e *entry) error {
	g := a.book.guards.of(e)
	if e.guard != 0 {
		a.guards++
	}
	switch {
	case e.kids != a.kids[id] || g.shield != a.shields[id]:
		return fmt.Errorf("kids %d, shield %d; found %d and %d", e.kids, g.shield, a.kids[id], a.shields[id])
	case g.held != a.held[id]:
		return fmt.Errorf("held %v, found %v", g.held, a.held[id])
	case (g.fill != 0) != (e.life == filling):
		return fmt.Errorf("filled by %d, life %d", g.fill, e.life)
	case (e.guard != 0) != (*g != guard{}):
		return fmt.Errorf("guard %d has %+v", e.guard, *g)
	}
	return nil
}

// add counts an entry by its life.
func (a *audit) add(e *entry) {
	n, in := a.book.bytes(e), a.spaces[e.space]
	a.used++
	switch e.life {
	case hole:
		a.count.Holes++
		n = 0
	case filling:
		a.count.Filling++
	case resident:
		a.count.Entries++
		in.Entries++
		if e.mark&dirty != 0 {
			a.count.DirtyEntries++
			a.count.DirtyBytes += int64(e.size)
		}
		if e.claimed {
			a.claimed += n
		}
		if e.mark&cooled != 0 {
			a.count.ColdBytes += n
			in.ColdBytes += n
		}
	case gone:
		if !a.book.isHeld(e) {
			a.count.LeavingBytes += n
			in.Bytes -= n
		}
	}
	a.count.UsedBytes += n
	in.Bytes += n
	a.spaces[e.space] = in
	if a.book.protected(e) {
		a.count.ProtectedBytes += n
	}
}

// ways asks for an entry in its quota's order and in the index.
func (a *audit) ways(id uint32, e *entry) error {
	b := a.book
	if quota := b.spaces.slots.At(e.space).quota; (e.mark&inQuota != 0) != (quota != 0 && e.life == resident) {
		return fmt.Errorf("in the order of its quota: %v, life %d, quota %d", e.mark&inQuota != 0, e.life, quota)
	}
	if e.life == gone && e.kids == 0 {
		return nil // must not be found
	}
	a.indexed++
	if found := b.find(key.Key{Space: b.spaces.slots.At(e.space).id, Hash: e.hash}); found != id {
		return fmt.Errorf("its key leads to entry %d", found)
	}
	return nil
}
