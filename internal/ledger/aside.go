package ledger

import "github.com/kvstored/kvstored/internal/base"

// NoteAside has f called for each entry that is put aside, under the ledger's lock: its
// payload must not be found again, nor its memory be given out. f calls no ledger. Call
// it before the ledger is used.
func (l *Ledger) NoteAside(f func(Entry)) { l.mu.book.aside = f }

// PutAside puts aside an entry of which the tier finds its own words wrong.
func (l *Ledger) PutAside(id ID, what string) {
	b := l.mu.lock()
	defer l.mu.unlock()
	b.broken(uint32(id), what)
}

// broken puts aside an entry that a call is about which its books do not allow, and which is
// not carried out: what protects the entry may be wrong. The bytes of a resident one stay in
// use for good. Others are served to nobody as they are.
func (b *book) broken(id uint32, what string) {
	base.Broken("ledger: entry %d %s", id, what)
	e := b.entries.At(id)
	if e.life != resident {
		return
	}
	if b.aside != nil {
		b.aside(b.snapshot(id))
	}
	n := b.bytes(e)
	b.recency.renewPending()
	b.policies.remove(id)
	b.endResidency(id)
	e.mark |= freed
	if !b.isHeld(e) {
		b.reclaim(id)
	}
	b.budgets.charge(Daemon, IO, n)
	b.count.AsideEntries++
	b.count.AsideBytes += n
}
