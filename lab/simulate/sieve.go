package simulate

// sieve evicts the first block not used since its hand passed last (Zhang et al., SIEVE is
// Simpler than LRU, NSDI 2024). The hand moves from the oldest block to the newest, forgives
// each used block once, and begins again at the oldest. Blocks never move.
type sieve struct {
	blocks         []seen
	oldest, newest uint32 // block number + 1; 0 = none
	hand           uint32 // the block that it meets next; 0 = the oldest
	n, capacity    int
}

// seen links the residents in the order in which they came, as block number + 1.
type seen struct {
	older, newer uint32
	in, used     bool // since the hand passed
}

func newSieve(distinct, capacity int) *sieve {
	return &sieve{blocks: make([]seen, distinct), capacity: capacity}
}

func (s *sieve) len() int { return s.n }

func (s *sieve) has(b uint32) bool { return s.blocks[b].in }

func (s *sieve) access(_ int, b uint32) (hit bool) {
	if s.has(b) {
		s.blocks[b].used = true
		return true
	}
	for s.n >= s.capacity {
		s.evict()
	}
	s.blocks[b] = seen{older: s.newest, in: true}
	if s.newest != 0 {
		s.blocks[s.newest-1].newer = b + 1
	} else {
		s.oldest = b + 1
	}
	s.newest = b + 1
	s.n++
	return false
}

func (s *sieve) evict() {
	for {
		if s.hand == 0 {
			s.hand = s.oldest
		}
		e := &s.blocks[s.hand-1]
		s.hand = e.newer
		if e.used {
			e.used = false
			continue
		}
		if e.in = false; e.older != 0 {
			s.blocks[e.older-1].newer = e.newer
		} else {
			s.oldest = e.newer
		}
		if e.newer != 0 {
			s.blocks[e.newer-1].older = e.older
		} else {
			s.newest = e.older
		}
		s.n--
		return
	}
}
