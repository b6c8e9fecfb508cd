package policy

// s3fifo lets new entries prove themselves in a small queue (Yang et al., FIFO
// Queues are All You Need for Cache Eviction, SOSP 2023), as its authors
// simulate it: the queues share one room, and nothing is evicted before that
// is full. An entry used twice in the small queue moves to the main one, which
// gives an entry another round for each use, three at most. A victim from the
// small queue leaves a ghost, and if it comes back it enters the main one.
type s3fifo struct {
	pair      // mark: uses, up to maxUses, and upper
	mainShare int64
	ghostRoom int64
	maxUses   uint8
	promoteAt uint8
}

const (
	small, main = 0, 1
	lost        = 0 // the ghosts

	smallShare = 0.1 // of the capacity; section 4.2
	ghostShare = 0.9
	promoteAt  = 2 // uses
	maxUses    = 3 // two bits
)

// MostUses bounds the uses that S3-FIFO can count.
const MostUses = upper - 1

// newS3FIFO is S3-FIFO as its paper has it.
func newS3FIFO(capacity int64) Policy { return NewS3FIFO(capacity, smallShare, maxUses) }

// NewS3FIFO is the policy "s3fifo" with a small queue of another share of the
// capacity, above 0 and below 1, and with entries of which so many uses count, 1
// to MostUses. An entry moves to the main queue after two uses, or after one where
// no more count.
func NewS3FIFO(capacity int64, small float64, uses int) Policy {
	return &s3fifo{
		pair:      pair{capacity: capacity},
		mainShare: capacity - int64(small*float64(capacity)),
		ghostRoom: int64(ghostShare * float64(capacity)),
		maxUses:   uint8(uses),
		promoteAt: uint8(min(uses, promoteAt)),
	}
}

func (p *s3fifo) Miss(hash uint64, size int64) {
	if _, found := p.ghosts.find(hash); found {
		p.promise(hash, size)
	}
}

func (p *s3fifo) Add(id ID, m Meta) {
	to := small
	if p.redeem(m.Hash) {
		to = main
	}
	p.enter(id, to, m.Size)
}

// uses is how many of its uses the policy counts.
func (p *s3fifo) uses(id ID) uint8 { return p.nodes.At(uint32(id)).mark() &^ upper }

func (p *s3fifo) Touch(id ID) {
	if n := p.nodes.resident(id); n != nil && n.mark()&^upper < p.maxUses {
		n.setMark(n.mark() + 1)
		p.Allow(id) // to move on, if it was refused
	}
}

// Leave makes a ghost of id, if that is in the small queue.
func (p *s3fifo) Leave(id ID) {
	if i, ok := p.quit(id); ok {
		p.out(id, i)
	}
}

// out ends id, which has left queue i.
func (p *s3fifo) out(id ID, i int) {
	if i == main {
		p.end(id, main)
		return
	}
	p.endAsGhost(id, small, lost)
	p.ghosts.trim(lost, p.ghostRoom)
}

// Evict takes from the main queue if that is beyond its share, else from the
// small one; where that yields no victim, as when it is empty, from the other.
// An entry that the small queue promotes can be the next victim. An entry
// with another round or another queue before it is no victim: ok is not asked of it.
func (p *s3fifo) Evict(ok func(ID) bool) (ID, bool) {
	if p.weights[main] > p.mainShare {
		if id, found := p.fromMain(ok); found {
			return id, true
		}
	}
	if id, found := p.fromSmall(ok); found {
		return id, true
	}
	return p.fromMain(ok)
}

func (p *s3fifo) fromSmall(ok func(ID) bool) (ID, bool) {
	goes := func(id ID) bool { return p.uses(id) >= p.promoteAt || ok(id) }
	for {
		id, found := p.take(small, goes)
		if !found {
			return 0, false
		}
		if p.uses(id) < p.promoteAt {
			p.out(id, small)
			return id, true
		}
		p.shift(id, small, main)
		p.put(id, main, 0)
	}
}

func (p *s3fifo) fromMain(ok func(ID) bool) (ID, bool) {
	goes := func(id ID) bool { return p.uses(id) > 0 || ok(id) }
	for {
		id, found := p.take(main, goes)
		if !found {
			return 0, false
		}
		uses := p.uses(id)
		if uses == 0 {
			p.out(id, main)
			return id, true
		}
		p.put(id, main, uses-1)
	}
}
