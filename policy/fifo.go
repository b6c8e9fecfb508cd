package policy

// fifo evicts the entry that was added longest ago, used or not.
type fifo struct{ queue }

func newFIFO(int64) Policy { return &fifo{} }

func (p *fifo) Add(id ID, _ Meta) {
	if p.nodes.enter(id) {
		p.enqueue(id)
	}
}

func (p *fifo) Touch(id ID) { p.nodes.resident(id) }
