package ledger

// EachDirty calls visit for the resident entries that the tiers below lack, in no
// order, with the lock held for up to 4,096 entries at a time. visit keeps nothing of
// the entry. Entries that come, go or are written meanwhile may be missing.
func EachDirty(l *Ledger, visit func(*Entry)) {
	var x Entry
	l.eachRound(func(b *book, id uint32, e *entry) {
		if e.life == resident && e.mark&dirty != 0 {
			b.export(id, &x)
			visit(&x)
		}
	})
}
