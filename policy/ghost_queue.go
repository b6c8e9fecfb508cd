package policy

// ghostQueue is the records of one queue in their order, with no links among
// them: they fill runs of records, and the runs are linked, oldest first. A
// ghost that is dropped from the middle leaves its place in its run behind. A
// run without ghosts goes at once, also from the middle; two neighbours with few
// become one. So two neighbours hold more than mergeAt ghosts, but for the
// oldest run, which will be empty soon anyway, and the newest, which is still
// filled.
type ghostQueue struct {
	front, back uint32 // runs; 0 is none
	from        uint32 // place in front of the oldest ghost
	to          uint32 // place in back of the next ghost
	weight      int64  // sum of sizes
}

// run is runSize records in a row.
type run struct {
	prev, next uint32 // in its queue
	live       uint32 // ghosts; all other places are zero
}

const (
	runBits = 8
	runSize = 1 << runBits // 3 KiB
	// mergeAt is how many ghosts two runs may have to become one: so few that
	// the one has room for a while, or a queue could merge with every call.
	mergeAt = runSize - runSize/8
)

func (g *ghosts) run(r uint32) *run { return g.runs.At(r) }

// linkTo returns the record of a place in a run.
func linkTo(r, place uint32) uint32 { return r<<runBits + place }

// oldest returns the first record of q, which has one.
func (q *ghostQueue) oldest() uint32 { return linkTo(q.front, q.from) }

// append returns a new last record of q.
func (g *ghosts) append(q *ghostQueue) uint32 {
	if q.back == 0 || q.to == runSize {
		g.extend(q)
	}
	g.run(q.back).live++
	q.to++
	return linkTo(q.back, q.to-1)
}

// extend gives q another run.
func (g *ghosts) extend(q *ghostQueue) {
	r := g.runs.Take()
	g.records.Reach(linkTo(r, runSize-1))
	*g.run(r) = run{prev: q.back}
	if q.back != 0 {
		g.run(q.back).next = r
	} else {
		q.front, q.from = r, 0
	}
	q.back, q.to = r, 0
}

// release takes a run without ghosts out of q.
func (g *ghosts) release(q *ghostQueue, r uint32) {
	gone := g.run(r)
	if gone.prev != 0 {
		g.run(gone.prev).next = gone.next
	} else {
		q.front, q.from = gone.next, 0
	}
	if gone.next != 0 {
		g.run(gone.next).prev = gone.prev
	} else {
		q.back, q.to = gone.prev, runSize // where its last ghost is nobody looks
	}
	g.runs.Give(r)
}

// compact frees or merges a run of q that has one ghost less. It looks at no more
// than three runs.
func (g *ghosts) compact(q *ghostQueue, r uint32) {
	left := g.run(r)
	left.live--
	switch {
	case left.live == 0:
		g.release(q, r)
	case r != q.front && !g.merge(q, left.prev, r) && left.next != 0:
		g.merge(q, r, left.next)
	}
	for q.front != 0 && g.record(q.oldest()).dead() {
		q.from++
		g.looked++
	}
}

// merge moves the ghosts of b, which follows a, to a, if they are few.
func (g *ghosts) merge(q *ghostQueue, a, b uint32) bool {
	into, gone := g.run(a), g.run(b)
	if a == q.front || into.live+gone.live > mergeAt {
		return false
	}
	into.live += gone.live
	next := linkTo(a, 0)
	for _, r := range [2]uint32{a, b} {
		for place := range uint32(runSize) {
			if from := linkTo(r, place); !g.record(from).dead() {
				g.move(from, next)
				next++
			}
		}
	}
	g.looked += 2 * runSize
	last := b == q.back
	g.release(q, b)
	if last {
		q.to = into.live
	}
	return true
}

// move gives a ghost another record.
func (g *ghosts) move(from, to uint32) {
	if from != to {
		rec := g.record(from)
		g.index.Move(spread(uint64(rec.hash)), from, to)
		*g.record(to), *rec = *rec, ghost{}
	}
}
