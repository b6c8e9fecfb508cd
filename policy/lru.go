package policy

// lru evicts the least recently used entry.
type lru struct{ queue }

func newLRU(int64) Policy { return &lru{} }

func (p *lru) Add(id ID, _ Meta) {
	if p.nodes.enter(id) {
		p.enqueue(id)
	}
}

func (p *lru) Touch(id ID) {
	if p.leave(id) {
		p.enqueue(id)
	}
}

// Renew is a Touch: there is no other use.
func (p *lru) Renew(id ID) { p.Touch(id) }
