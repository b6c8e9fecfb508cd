package ledger

import (
	"math/bits"

	"github.com/kvstored/kvstored/internal/base"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/policy"
)

// hold is one owner's protection of one entry in one class.
type hold struct {
	entry uint32
	who   uint32 // owner and class
	n     uint32 // how many times
	next  uint32 // chain of the index
}

func who(o Owner, c Class) uint32 { return o.place()*classes + uint32(c) }

// holds is a table of holds by entry, owner and class. A list per entry would
// be shorter to write, and slow where hundreds of clients share one prompt.
type holds struct {
	index base.Index
	recs  base.Pool[hold]
	seed  uint64
}

func (t *holds) init(seed uint64) {
	t.seed = seed
	t.index = base.NewIndex(1,
		func(rec uint32) uint64 { r := t.recs.At(rec); return t.hash(r.entry, r.who) },
		func(rec uint32) *uint32 { return &t.recs.At(rec).next },
	)
}

func (t *holds) hash(entry, who uint32) uint64 {
	hi, lo := bits.Mul64(uint64(entry)<<32|uint64(who)^t.seed, 0x9e3779b97f4a7c15)
	return hi ^ lo
}

func (t *holds) find(entry, who uint32) uint32 {
	rec := t.index.Head(t.hash(entry, who))
	for rec != 0 {
		r := t.recs.At(rec)
		if r.entry == entry && r.who == who {
			break
		}
		rec = r.next
	}
	return rec
}

func (t *holds) add(entry, who uint32) uint32 {
	rec := t.recs.Take()
	r := t.recs.At(rec)
	*r = hold{entry: entry, who: who, n: 1}
	t.index.Insert(t.hash(entry, who), rec, &r.next)
	return rec
}

func (t *holds) delete(rec uint32) {
	r := t.recs.At(rec)
	t.index.Remove(t.hash(r.entry, r.who), rec, &r.next)
	t.recs.Give(rec)
}

// take records o's first hold on id in class c and charges for it, without
// asking the budgets. It leaves protection to the caller.
func (b *budgets) take(o Owner, c Class, id uint32) (rec uint32) {
	e := b.table.entries.At(id)
	w, n := &b.owners[o.place()], b.table.bytes(e)
	g := b.table.guards.make(e)
	if g.held[c]++; g.held[c] == 1 {
		b.table.count.ClassBytes[c] += n
	}
	w.bytes[c] += n
	w.holds++
	return b.holds.add(id, who(o, c))
}

// drop takes back one hold, and reports whether that was o's last in c.
func (b *budgets) drop(rec uint32) bool {
	r := b.holds.recs.At(rec)
	if r.n--; r.n > 0 {
		return false
	}
	e, c := b.table.entries.At(r.entry), r.who%classes
	w, n := &b.owners[r.who/classes], b.table.bytes(e)
	g := b.table.guards.of(e)
	if g.held[c]--; g.held[c] == 0 {
		b.table.count.ClassBytes[c] -= n
	}
	b.table.guards.tidy(e)
	w.bytes[c] -= n
	w.holds--
	b.table.released = true
	b.settle(r.who / classes)
	b.holds.delete(rec)
	return true
}

// hold protects a resident entry if the budgets admit it.
func (b *book) hold(o Owner, c Class, id uint32) error {
	e := b.entries.At(id)
	held := b.guards.of(e).held[c] > 0
	if held {
		if rec := b.budgets.holds.find(id, who(o, c)); rec != 0 && !b.budgets.owner(o).leaving {
			b.budgets.holds.recs.At(rec).n++
			return nil
		}
	}
	was := b.protected(e)
	g := growth{own: b.bytes(e)}
	if !held {
		g.class = g.own
	}
	if !was {
		g.total = g.own + b.exposed(e.parent)
	}
	if err := b.budgets.fits(o, c, g); err != nil {
		return err
	}
	b.budgets.take(o, c, id)
	if !was {
		b.protect(id)
	}
	return nil
}

// unhold takes back one hold.
func (b *book) unhold(o Owner, c Class, id uint32) {
	rec := b.budgets.holds.find(id, who(o, c))
	if rec == 0 || b.budgets.owner(o).holds == 0 {
		b.broken(id, "is let go of, and is not held")
		return
	}
	if !b.budgets.drop(rec) {
		return
	}
	e := b.entries.At(id)
	switch {
	case b.protected(e):
	case e.life == resident:
		b.unprotect(id)
	case e.life == gone:
		b.count.ProtectedBytes -= b.bytes(e)
		b.leave(e)
		b.reclaim(id)
	}
}

// Hold protects, for o in class c, the longest leading run of ks that is
// resident and that the budgets admit, and stores the run's entries in
// out[:n]; out is at least as long as ks. It is no use of them: see Touch. err
// says why a budget made the run shorter; a run that ends at a missing chunk has
// no error. Each of out[:n] needs one Unhold.
func (l *Ledger) Hold(o Owner, c Class, ks []key.Key, out []Entry) (n int, err error) {
	for more := true; more && n < len(ks); {
		round := ks[n:min(len(ks), n+maxRound)]
		l.mu.round(func(b *book) {
			for _, k := range round {
				id := b.find(k)
				if more = id != 0 && b.entries.At(id).life == resident; !more {
					return
				}
				if err = b.hold(o, c, id); err != nil {
					more = false
					return
				}
				b.export(id, &out[n])
				n++
			}
		})
	}
	return n, err
}

// Unhold gives back one hold of o in class c on each of ids. Giving back what
// is not held is a broken invariant.
func (l *Ledger) Unhold(o Owner, c Class, ids []ID) {
	l.mu.rounds(len(ids), func(b *book, from, to int) {
		for _, id := range ids[from:to] {
			b.unhold(o, c, uint32(id))
		}
	})
}

// Touch marks the resident ones of ks (one chain, in prefix order) as used,
// tail first.
func (l *Ledger) Touch(ks []key.Key) {
	for end := len(ks); end > 0; end -= maxRound {
		l.mu.round(func(b *book) {
			b.recency.renewPending()
			for i := end - 1; i >= max(0, end-maxRound); i-- {
				if id := b.find(ks[i]); id != 0 && b.entries.At(id).life == resident {
					b.policies.use(policy.ID(id))
				}
			}
		})
	}
}
