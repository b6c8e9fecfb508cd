package ledger

import "github.com/kvstored/kvstored/policy"

// Unload calls visit for all resident entries, the first to go first, for another
// process to Reload. It takes their order away: nothing is evicted from l any more, and
// only its entries may still be asked for. The caller is the only user of l meanwhile.
// Entries on the lines of DropBehind and MarkCold come first. visit is called with the lock held, and keeps
// nothing of the entry.
func Unload(l *Ledger, visit func(*Entry)) {
	l.mu.eachIn(everything, func(b *book, id policy.ID) { b.policies.scopes[everything].policy.Allow(id) })
	u := unloading{visit: visit}
	for more := true; more; {
		l.mu.round(func(b *book) { more = u.round(b) })
	}
}

// Drop calls visit for all resident entries that nothing protects, in no order, and has them
// gone, without the work of an eviction. Only Unhold may be called of l afterwards. visit is
// called with the lock held, and keeps nothing of the entry.
func Drop(l *Ledger, visit func(*Entry)) {
	var x Entry
	l.mu.eachIn(everything, func(b *book, id policy.ID) {
		if e := b.entries.At(uint32(id)); !b.protected(e) {
			b.export(uint32(id), &x)
			e.life = gone
			visit(&x)
		}
	})
}

// unloading is the Unload at work.
type unloading struct {
	visit func(*Entry)
	done  idSet // entries that were visited
	x     Entry
}

// round visits the next entries, and reports whether there may be more.
func (u *unloading) round(b *book) bool {
	for range maxRound {
		id, more := u.next(b)
		if !more {
			return false
		}
		if e := b.entries.At(id); e.life == resident && !u.done.has(policy.ID(id)) {
			b.export(id, &u.x)
			u.visit(&u.x)
			u.done.set(policy.ID(id))
		}
	}
	return true
}

// next takes the next entry out of the lines, then out of the policy.
func (u *unloading) next(b *book) (id uint32, more bool) {
	line, m := &b.order.dropBehind, dropBehind
	if line.n == 0 {
		line, m = &b.order.cold, cooled
	}
	if line.n == 0 {
		victim, ok := b.policies.scopes[everything].policy.Evict(func(policy.ID) bool { return true })
		return uint32(victim), ok
	}
	if id = line.pop(); b.entries.At(id).mark&m == 0 {
		id = 0 // it has left the line
	}
	return id, true
}

// Reload is Restore of an entry that Unload has visited, with its uses, which policies
// that do not plan know from touches. Call it in the order of Unload, and backwards
// where Backwards says so. SetBelow says anew what tiers below have.
func Reload(l *Ledger, e Entry, uses uint8) (ID, bool) {
	e.Hits = min(uses, MaxHits)
	id, ok := l.Restore(e, e.Parent)
	if !ok {
		return id, false
	}
	b := l.mu.lock()
	defer l.mu.unlock()
	for range e.Hits {
		b.policies.touch(uint32(id))
	}
	return id, true
}

// Backwards reports whether a policy evicts the newest entry first. Its order comes about
// only if the first to go is added last.
func Backwards(policyName string) bool { return policyName == "mru" }
