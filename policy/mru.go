package policy

// mru evicts the most recently used entry: right for loops larger than the
// store. Its owner evicts before it adds, so that a new entry is not its own
// victim.
type mru struct{ queue }

func newMRU(int64) Policy { return &mru{} }

func (p *mru) Add(id ID, _ Meta) {
	if p.nodes.enter(id) {
		p.jump(id)
	}
}

func (p *mru) Touch(id ID) {
	if p.leave(id) {
		p.jump(id)
	}
}

// Renew is a Touch: there is no other use.
func (p *mru) Renew(id ID) { p.Touch(id) }
