package policy

// lru evicts the least recently used entry, or as mru the most recently used one: right
// for loops larger than the store. The owner of that evicts before it adds, so that a new
// entry is not its own victim.
type lru struct {
	queue
	mru bool
}

func newLRU(int64) Policy { return &lru{} }

func newMRU(int64) Policy { return &lru{mru: true} }

func (p *lru) Add(id ID, _ Meta) {
	if p.nodes.enter(id) {
		p.put(id)
	}
}

func (p *lru) Touch(id ID) {
	if p.leave(id) {
		p.put(id)
	}
}

// put gives an entry that was just used its place.
func (p *lru) put(id ID) {
	if p.mru {
		p.jump(id)
	} else {
		p.enqueue(id)
	}
}

// Renew is a Touch: there is no other use.
func (p *lru) Renew(id ID) { p.Touch(id) }
