package ledger

import (
	"math"

	"github.com/kvstored/kvstored/internal/base"
)

// Owner is who answers for holds and fills: one connection, or the daemon. The low 16 bits
// are its place, and the others count who had the place before: no other is ever called
// the same.
type Owner uint64

// Daemon is the owner of the daemon's own work. It has no limit of its own;
// those of the classes and the total hold for it too.
const Daemon Owner = 0

// MaxOwners is how many owners there can be at a time beside the daemon: an entry's
// owner counts have 16 bits.
const MaxOwners = 1<<16 - 2

func (o Owner) place() uint32 { return uint32(o & math.MaxUint16) }

// owner is a place. What it holds counts it:
//
//	NewOwner ──▶ open ──CloseOwner──▶ leaving ──it holds nothing──▶ closed: the place has another name
//
// Only an open one is given anything.
type owner struct {
	name    Owner
	bytes   [classes]int64 // each chunk once per class
	holds   uint32         // records in holds
	extra   int64          // bytes by Charge
	leaving bool
}

// NewOwner registers one more owner. It is Daemon, and nobody's, where there are
// MaxOwners.
func (l *Ledger) NewOwner() Owner {
	b := &l.mu.lock().budgets
	defer l.mu.unlock()
	if b.open == MaxOwners {
		return Daemon
	}
	b.open++
	if last := len(b.closed) - 1; last >= 0 {
		at := b.closed[last]
		b.closed = b.closed[:last]
		return b.owners[at].name
	}
	o := Owner(len(b.owners))
	b.owners = append(b.owners, owner{name: o})
	return o
}

// CloseOwner gives o nothing any more. It ends, and its place is another's, when it holds
// nothing. Closing twice, or the daemon, changes nothing.
func (l *Ledger) CloseOwner(o Owner) {
	b := l.mu.lock()
	defer l.mu.unlock()
	if o != Daemon {
		b.budgets.owner(o).leaving = true
		b.budgets.settle(o.place())
	}
}

// owner is what o has: nothing, if it has ended.
func (b *budgets) owner(o Owner) *owner {
	if w := &b.owners[o.place()]; w.name == o {
		return w
	}
	return &owner{name: o, leaving: true}
}

// settle closes an owner that is leaving and holds nothing.
func (b *budgets) settle(place uint32) {
	w := &b.owners[place]
	if !w.leaving || w.holds > 0 || w.extra > 0 {
		return
	}
	*w = owner{name: w.name + math.MaxUint16 + 1}
	b.open--
	b.closed = append(b.closed, place)
	b.table.released = true // who is alone now may have the whole class
}

// OwnerBytes is what o holds and is charged for in class c, in occupied bytes.
func (l *Ledger) OwnerBytes(o Owner, c Class) int64 {
	b := l.mu.lock()
	defer l.mu.unlock()
	return b.budgets.owner(o).bytes[c]
}

// Charge counts n bytes of the tier's room that are no entry (memory put
// aside) as used and as protected by o in class c. It is refused like a
// Hold; Uncharge gives them back.
func (l *Ledger) Charge(o Owner, c Class, n int64) error {
	b := l.mu.lock()
	defer l.mu.unlock()
	if err := b.budgets.fits(o, c, growth{n, n, n}); err != nil {
		return err
	}
	b.budgets.charge(o, c, n)
	return nil
}

// Uncharge gives back n bytes of a Charge.
func (l *Ledger) Uncharge(o Owner, c Class, n int64) {
	b := l.mu.lock()
	defer l.mu.unlock()
	if w := b.budgets.owner(o); w.extra < n || w.bytes[c] < n {
		base.Broken("ledger: %d bytes are given back, and owner %d is charged for %d", n, o, w.extra)
		return
	}
	b.budgets.charge(o, c, -n)
	b.budgets.settle(o.place())
	b.released = true
}

func (b *budgets) charge(o Owner, c Class, n int64) {
	w := &b.owners[o.place()]
	w.bytes[c] += n
	w.extra += n
	b.extra += n
	b.table.count.ClassBytes[c] += n
	b.table.count.ProtectedBytes += n
	b.table.count.UsedBytes += n
}
