package ledger

// OwnerBytes is what o is charged for in class c.
func (l *Ledger) OwnerBytes(o Owner, c Class) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.budgets.owner(o).bytes[c]
}
