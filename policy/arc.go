package policy

// arc has two queues, entries used once (t1) and entries used again (t2), and
// moves the border p between them toward the one whose ghosts (b1, b2) are
// asked for (Megiddo and Modha, ARC: A Self-Tuning, Low Overhead Replacement
// Cache, FAST 2003, figure 4). Both are in the order of their last use.
//
// p is real-valued. A ghost of size s in b1 moves it up by
// s × max(1, |b2|/|b1|), one in b2 down by s × max(1, |b1|/|b2|).
// The paper drops ghosts before it evicts. Here Add drops them: the victims are
// the same, and the ghosts are bounded even if the owner never evicts.
type arc struct {
	pair
	p      float64
	fromB2 bool // the last Miss met a ghost of b2
}

const (
	t1, t2 = 0, 1
	b1, b2 = 0, 1
)

func newARC(capacity int64) Policy { return &arc{pair: pair{capacity: capacity}} }

func (a *arc) Miss(hash uint64, size int64) {
	queue, found := a.ghosts.find(hash)
	a.fromB2 = found && queue == b2
	if !found {
		return
	}
	ones, twos := float64(a.ghosts.weight(b1)), float64(a.ghosts.weight(b2))
	step := float64(weigh(size))
	switch queue {
	case b1:
		a.p = min(a.p+step*max(1, twos/ones), float64(a.capacity))
	case b2:
		a.p = max(a.p-step*max(1, ones/twos), 0)
	}
	a.promise(hash, size)
}

func (a *arc) Add(id ID, m Meta) {
	to := t1
	if a.redeem(m.Hash) {
		to = t2
	}
	a.enter(id, to, m.Size)
	a.ghosts.trim(b1, max(0, a.capacity-a.weights[t1]))
	a.ghosts.trim(b2, max(0, 2*a.capacity-a.weights[t1]-a.weights[t2]-a.ghosts.weight(b1)))
}

func (a *arc) Touch(id ID) {
	from, ok := a.in(id)
	if !ok {
		return
	}
	if from == t1 {
		a.shift(id, t1, t2)
	}
	a.move(id, from, t2)
}

// Renew makes id the youngest of those it is among.
func (a *arc) Renew(id ID) {
	if i, ok := a.in(id); ok {
		a.move(id, i, i)
	}
}

// move takes id out of t1 or t2 and makes it the youngest there or in the other.
func (a *arc) move(id ID, from, to int) {
	a.orders[from].leave(&a.nodes, id)
	a.put(id, to, 0)
}

// Leave makes a ghost of id.
func (a *arc) Leave(id ID) {
	if i, ok := a.quit(id); ok {
		a.endAsGhost(id, i, i)
	}
}

// Evict takes from t1 if that is beyond p, else from t2; where ok refuses all,
// from the other.
func (a *arc) Evict(ok func(ID) bool) (ID, bool) {
	from := t2
	if w := float64(a.weights[t1]); w > a.p || a.fromB2 && w == a.p {
		from = t1
	}
	for _, i := range [2]int{from, 1 - from} {
		if id, found := a.take(i, ok); found {
			a.endAsGhost(id, i, i)
			return id, true
		}
	}
	return 0, false
}
