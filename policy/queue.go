package policy

// queue is a whole policy of one order, but for what a hit does.
type queue struct {
	nodes   nodes
	order   order
	inspect uint64
}

func (q *queue) enqueue(id ID) { q.order.enqueue(&q.nodes, id) }

func (q *queue) jump(id ID) { q.order.jump(&q.nodes, id) }

func (q *queue) leave(id ID) bool { return q.order.leave(&q.nodes, id) }

func (q *queue) Miss(uint64, int64) {}

func (q *queue) Remove(id ID) { q.leave(id) }

func (q *queue) Allow(id ID) { q.order.allow(&q.nodes, id) }

func (q *queue) Evict(ok func(ID) bool) (ID, bool) {
	return q.order.evict(&q.nodes, ok, &q.inspect)
}

func (q *queue) Steps() uint64 { return q.inspect + q.order.back.steps }
