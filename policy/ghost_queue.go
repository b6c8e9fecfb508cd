package policy

// ghostQueue is the records of one queue in their order, with no links among
// them: they fill runs of records, oldest first. A ghost that is dropped from
// the middle leaves its place behind; when these become many the queue is
// squeezed, a few places for each ghost that comes.
//
// Places are numbered from the first there ever was. from is that of the
// oldest ghost, or of a place left behind, and to that of the next.
type ghostQueue struct {
	runs     []uint32 // run numbers
	first    uint64   // place where runs begins
	from, to uint64
	dead     uint64 // places left behind from..to; from is none of them
	weight   int64  // sum of sizes

	// While it is squeezed, read is the next place to be looked at, and write,
	// at or before it, where the ghost there goes. All between are left behind.
	squeezing   bool
	write, read uint64
}

const (
	runBits = 8 // 256 records: 3 KiB
	// squeezeAt: a queue is squeezed when one place in so many is left behind.
	squeezeAt = 4
	// squeezeRound is how many places a ghost that comes squeezes.
	squeezeRound = 8
)

// record returns a link to the record of a place.
func (q *ghostQueue) record(place uint64) uint32 {
	at := place - q.first
	return q.runs[at>>runBits]<<runBits + uint32(at&(1<<runBits-1)) + 1
}

// append returns a link to a new last record of q.
func (g *ghosts) append(q *ghostQueue) uint32 {
	if q.to-q.first == uint64(len(q.runs))<<runBits {
		run := g.runs
		if n := len(g.spare); n > 0 {
			run, g.spare = g.spare[n-1], g.spare[:n-1]
		} else {
			g.runs++
			g.records.reach(run << runBits)
		}
		q.runs = append(q.runs, run)
	}
	q.to++
	return q.record(q.to - 1)
}

// settle moves the oldest place on to a ghost. What is being squeezed out is
// passed over whole.
func (g *ghosts) settle(q *ghostQueue) {
	for q.from < q.to && g.record(q.record(q.from)).dead() {
		if q.squeezing && q.from == q.write {
			q.squeezing = false
			q.dead -= q.read - q.write
			q.from = q.read
		} else {
			q.dead--
			q.from++
		}
	}
	for ; q.from-q.first >= 1<<runBits; q.first += 1 << runBits {
		g.spare = append(g.spare, q.runs[0])
		q.runs = q.runs[1:]
	}
}

// squeeze moves ghosts together, if many places were left behind.
func (g *ghosts) squeeze(q *ghostQueue) {
	if !q.squeezing {
		if q.dead < max((q.to-q.from)/squeezeAt, 1<<runBits) {
			return
		}
		q.squeezing, q.write, q.read = true, q.from, q.from
	}
	for end := min(q.read+squeezeRound, q.to); q.read < end; q.read++ {
		from := q.record(q.read)
		rec := g.record(from)
		if rec.dead() {
			continue
		}
		if q.write < q.read {
			to := q.record(q.write)
			*g.link(rec.hash, from) = to
			*g.record(to), *rec = *rec, ghost{}
		}
		q.write++
	}
	if q.read == q.to {
		q.squeezing = false
		q.dead -= q.read - q.write
		q.to = q.write
		for last := len(q.runs) - 1; last >= 0 && q.to-q.first <= uint64(last)<<runBits; last-- {
			g.spare = append(g.spare, q.runs[last])
			q.runs = q.runs[:last]
		}
	}
}
