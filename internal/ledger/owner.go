package ledger

// Owner is who answers for holds and fills: one connection, or the daemon.
type Owner uint32

// Daemon is the owner of the daemon's own work. It has no limit of its own;
// those of the classes and the total hold for it too.
const Daemon Owner = 0

// MaxOwners is how many owners there can be at a time beside the daemon: an entry's
// owner counts have 16 bits.
const MaxOwners = 1<<16 - 2

type owner struct {
	bytes [classes]int64 // each chunk once per class
	holds uint32         // records in holds
	extra int64          // bytes by Charge
	open  bool
}

// NewOwner registers one more owner. It is Daemon, and nobody's, where there are
// MaxOwners.
func (l *Ledger) NewOwner() Owner {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := &l.mu.budgets
	if b.open == MaxOwners {
		return Daemon
	}
	b.open++
	if last := len(b.closed) - 1; last >= 0 {
		o := b.closed[last]
		b.closed = b.closed[:last]
		b.owners[o].open = true
		return o
	}
	b.owners = append(b.owners, owner{open: true})
	return Owner(len(b.owners) - 1)
}

// CloseOwner ends an owner that holds nothing any more; its number will be
// given out again. An owner that still holds something is a broken invariant.
func (l *Ledger) CloseOwner(o Owner) {
	l.mu.Lock()
	defer l.unlock()
	b := &l.mu.book
	w := &b.budgets.owners[o]
	switch {
	case o == Daemon || !w.open:
		panic("ledger: closing an owner that is not open")
	case w.holds > 0 || w.extra > 0:
		panic("ledger: closing an owner that still holds something")
	}
	*w = owner{}
	b.budgets.open--
	b.budgets.closed = append(b.budgets.closed, o)
	b.released = true // who is alone now may have the whole class
}

// Charge counts n bytes of the tier's room that are no entry (quarantined
// memory) as used and as protected by o in class c. It is refused like a
// Hold; Uncharge gives them back.
func (l *Ledger) Charge(o Owner, c Class, n int64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := &l.mu.book
	if err := b.budgets.fits(o, c, growth{n, n, n}); err != nil {
		return err
	}
	b.budgets.charge(o, c, n)
	return nil
}

// Uncharge gives back n bytes of a Charge.
func (l *Ledger) Uncharge(o Owner, c Class, n int64) {
	l.mu.Lock()
	defer l.unlock()
	b := &l.mu.book
	b.budgets.charge(o, c, -n)
	b.released = true
	if w := &b.budgets.owners[o]; w.extra < 0 || w.bytes[c] < 0 {
		panic("ledger: uncharging more than was charged")
	}
}

func (b *budgets) charge(o Owner, c Class, n int64) {
	w := &b.owners[o]
	w.bytes[c] += n
	w.extra += n
	b.extra += n
	b.count.ClassBytes[c] += n
	b.count.ProtectedBytes += n
	b.count.UsedBytes += n
}
