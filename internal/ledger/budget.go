package ledger

import (
	"errors"
	"fmt"
	"math/rand/v2"
)

// Why a ledger does not protect more.
var (
	// ErrOverBudget is a refusal for good: the request exceeds what its
	// owner may hold, also when the others hold nothing. Waiting does not help.
	ErrOverBudget = errors.New("over budget")
	// ErrOwn is an ErrOverBudget that ends when its owner lets something go, or
	// when the dirty entries are written below.
	ErrOwn = fmt.Errorf("only its own is in the way: %w", ErrOverBudget)
	// ErrBusy is a refusal for now: others hold the room. See Released.
	ErrBusy = errors.New("busy")

	errLeaving = fmt.Errorf("ledger: its owner is leaving: %w", ErrOverBudget)
)

// BudgetError says which budget refused. It unwraps to ErrOverBudget or
// ErrBusy.
type BudgetError struct {
	Budget                       string // of whom
	NeedBytes, HasBytes, OfBytes int64  // asked for; in use; the limit
	Err                          error
}

func (e *BudgetError) Error() string {
	return fmt.Sprintf("ledger: %s: %d bytes more than the %d in use would exceed %d: %v",
		e.Budget, e.NeedBytes, e.HasBytes, e.OfBytes, e.Err)
}

func (e *BudgetError) Unwrap() error { return e.Err }

// LimitOf is what may be protected of a class in l, in occupied bytes; 0 is unlimited.
func LimitOf(l *Ledger, c Class) int64 {
	b := l.mu.lock()
	defer l.mu.unlock()
	return b.budgets.limits[c]
}

// budgets are what the owners hold, and how much they may. They leave protection
// to the book.
type budgets struct {
	table  *table
	limits [classes]int64 // 0: none
	total  int64          // so too
	holds  holds
	owners []owner
	open   int      // registered owners, those that are leaving included
	closed []uint32 // places to be given out again
	extra  int64    // bytes by Charge, of all owners
}

func (b *budgets) init(t *table, limits Limits) {
	b.table, b.total = t, limits.Total
	b.limits = [classes]int64{Lease: limits.Lease, Pin: limits.Pin, Load: limits.Load, Unwritten: limits.Unwritten}
	b.holds.init(rand.Uint64())
	b.owners = make([]owner, 1)
}

// growth is what a request adds to the three sums that have a limit.
type growth struct{ own, class, total int64 }

// fits says whether the budgets of o and c admit g.
func (b *budgets) fits(o Owner, c Class, g growth) error {
	if b.owner(o).leaving {
		return errLeaving
	}
	if err := b.fitsClass(o, c, g); err != nil || c == IO { // which has no limit of its own
		return err
	}
	if c == Unwritten && b.table.count.ClassBytes[c] == 0 {
		return nil // one at a time is always written, or what protects the rest would never end
	}
	if limit, has := b.total, b.table.count.ProtectedBytes; limit > 0 && g.total > 0 && has+g.total > limit {
		return &BudgetError{"total budget", g.total, has, limit, b.full(o, g.own, limit)}
	}
	return nil
}

// fitsClass is fits for the limit of the class. A larger load is let in where there is no
// other; a larger chunk to be written, which has its room, where the class is not full.
func (b *budgets) fitsClass(o Owner, c Class, g growth) error {
	limit, has, need := b.limits[c], b.table.count.ClassBytes[c], g.class
	if c == Load || c == Unwritten {
		need = min(need, limit)
	}
	if limit == 0 || c == Load && has == 0 || c == Unwritten && g.class > limit && has < limit {
		return nil
	}
	most := limit
	if b.open > 1 {
		most = limit / 2
	}
	if own := b.owner(o).bytes[c]; o != Daemon && g.own > 0 && own+g.own > most {
		return &BudgetError{c.String() + " budget of this owner", g.own, own, most, ErrOverBudget}
	}
	if g.class > 0 && has+g.class > limit {
		return &BudgetError{c.String() + " budget", g.class, has, limit, b.full(o, need, limit)}
	}
	return nil
}

// full says whether waiting helps: not if the request is too large in itself,
// what leads to it aside, and not if a client would wait for what only it can
// give back.
func (b *budgets) full(o Owner, need, limit int64) error {
	switch {
	case need > limit:
		return ErrOverBudget
	case o != Daemon && !b.othersHold(o, 0):
		return ErrOwn
	}
	return ErrBusy
}

// othersHold reports whether an owner other than o holds anything, apart from so many
// holds.
func (b *budgets) othersHold(o Owner, apart uint32) bool {
	w := b.owner(o)
	extra := b.extra - w.extra
	if o != Daemon {
		extra -= b.table.count.AsideBytes // which comes back never
	}
	return b.holds.index.Len()-w.holds > apart || extra != 0
}

// OthersHold reports whether an owner other than o can make room: by letting go
// of held entries, or of leaving ones. So many holds of others are apart,
// because they wait for room themselves.
func (l *Ledger) OthersHold(o Owner, apart int) bool {
	b := l.mu.lock()
	defer l.mu.unlock()
	return b.count.LeavingBytes > 0 || b.budgets.othersHold(o, uint32(apart))
}
