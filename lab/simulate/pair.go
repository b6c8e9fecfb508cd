package simulate

import "github.com/kvstored/kvstored/policy"

// pair is DRAM over a disk, as the daemon has them: a prompt hits as far as each of
// its blocks is in one of the two, what hits is promoted to DRAM, and what DRAM
// evicts is written if the disk lacks it.
type pair struct {
	dram, disk *shelf
	o          *TierOptions
	write      Write
	full       bool // the disk has evicted something
	written    int64
	hits       []uint8 // of each block, since it came to DRAM
	came       []int64 // millis of the trace when it did
	aging      []aging // for Auto, in their order
	now        int64
	near       []int // places of the prompt at hand that DRAM had
}

// aging is a block that came to DRAM at a time.
type aging struct {
	at int64
	b  uint32
}

func newPair(t *Trace, r *TierRow, o *TierOptions) (*pair, error) {
	p := &pair{o: o, write: r.Write, hits: make([]uint8, t.Distinct()), came: make([]int64, t.Distinct())}
	var err error
	if p.dram, err = newShelf(t, r.Policy, r.CapacityBlocks, weighed(o.ByCompute, o.PrefillDepth)); err != nil {
		return nil, err
	}
	p.disk, err = newShelf(t, r.DiskPolicy, r.DiskBlocks, weighed(o.DiskByCompute, o.PrefillDepth))
	return p, err
}

// request plays a request. It returns the length of the prefix
// that was in either tier, and which of its places DRAM had. near is valid until
// the next call.
func (p *pair) request(req *request, blocks []uint32) (prefix int, near []int) {
	p.now = req.millis
	p.writeOld()
	p.near = p.near[:0]
	for ; prefix < len(blocks); prefix++ {
		if b := blocks[prefix]; p.dram.has(b) {
			p.near = append(p.near, prefix)
		} else if !p.disk.has(b) {
			break
		}
	}
	p.dram.begin(blocks, prefix, req)
	p.disk.begin(blocks, prefix, req)
	kept := p.makeRoom(blocks, prefix)
	p.dram.enter(blocks[:kept], func(b uint32) { p.hits[b], p.came[b] = 0, p.now })
	p.disk.touch(blocks[:prefix])
	for _, at := range p.near {
		if b := blocks[at]; p.hits[b] < 255 {
			p.hits[b]++
		}
	}
	p.offer(blocks[:kept])
	p.dram.end(blocks)
	p.disk.end(blocks)
	return prefix, p.near
}

// makeRoom has DRAM evict for the blocks that it lacks, and returns how many of the
// prompt it will have then. The blocks of the prefix were hit; a new one must be worth it.
func (p *pair) makeRoom(blocks []uint32, prefix int) (kept int) {
	coming := 0
	for ; kept < len(blocks); kept++ {
		b := blocks[kept]
		if p.dram.has(b) {
			continue
		}
		p.dram.miss(b)
		if kept >= prefix && !p.worth(b, coming) || !p.dram.makeRoom(coming, p.evicted) {
			break
		}
		coming++
	}
	return kept
}

// worth reports whether a tier wants a new block, as planning.admit of the store
// asks: what only the disk wants must have been asked for before.
func (p *pair) worth(b uint32, coming int) bool {
	if p.dram.wants(b, coming) {
		return true
	}
	d := p.disk
	if d.capacity == 0 { // there is none
		return false
	}
	return d.planner == nil || d.n < d.capacity || d.planner.Seen(hashOf(b)) && d.wants(b, 0)
}

// evicted takes over a victim of DRAM.
func (p *pair) evicted(b uint32) {
	if p.write == Selective && int(p.hits[b]) < p.o.MinHits {
		return
	}
	p.store(b)
}

// offer writes what the mode says of a prompt, in its order, and no more behind a
// block that the disk does not want.
func (p *pair) offer(blocks []uint32) {
	for _, b := range blocks {
		if p.due(b) && !p.store(b) {
			break
		}
	}
	if p.write != Auto || p.o.UnsafeAge == 0 {
		return
	}
	for _, b := range blocks {
		if p.came[b] == p.now && !p.disk.has(b) {
			p.aging = append(p.aging, aging{p.now, b})
		}
	}
}

// due reports whether a block of the prompt at hand is to be written now. What the
// disk had, and has evicted, it gets again as a victim; a policy that plans may
// want it before.
func (p *pair) due(b uint32) bool {
	switch {
	case p.write == Selective:
		return int(p.hits[b]) >= p.o.MinHits
	case p.write == Through, p.write == Auto && !p.full:
		return p.came[b] == p.now || p.disk.planner != nil
	}
	return false
}

// writeOld writes what only DRAM has had for too long.
func (p *pair) writeOld() {
	limit := p.now - p.o.UnsafeAge.Milliseconds()
	for ; len(p.aging) > 0 && p.aging[0].at <= limit; p.aging = p.aging[1:] {
		if a := p.aging[0]; p.dram.has(a.b) && p.came[a.b] == a.at {
			p.store(a.b)
		}
	}
}

// store writes a block to the disk and reports whether that has it.
func (p *pair) store(b uint32) bool {
	d := p.disk
	if d.has(b) {
		return true
	}
	if d.capacity == 0 {
		return false
	}
	d.miss(b)
	if !d.wants(b, 0) || !d.makeRoom(0, func(uint32) { p.full = true }) {
		return false
	}
	d.put(b)
	p.written++
	return true
}

// shelf is one of the two tiers. A block may be there without its parent; it goes
// only when no child of it is there and the request at hand does not use it.
type shelf struct {
	*tree
	planner policy.Planner // nil: the policy does not plan
	renewer policy.Renewer // nil: it has no use for that
	hashes  []uint64

	prefillDepth int // see Options
}

func newShelf(t *Trace, name string, capacity, prefillDepth int) (*shelf, error) {
	p, err := policy.New(name, int64(capacity))
	if err != nil {
		return nil, err
	}
	s := &shelf{prefillDepth: prefillDepth, tree: newTree(newStore(t, capacity))}
	s.policy = p
	if m, ok := p.(policy.MetaReader); ok {
		m.ReadMetaFrom(s.told)
	}
	s.planner, _ = p.(policy.Planner)
	s.renewer, _ = p.(policy.Renewer)
	return s, nil
}

// begin takes in a request, of whose blocks the prefix stays.
func (s *shelf) begin(blocks []uint32, prefix int, req *request) {
	s.turn++
	for _, b := range blocks[:prefix] {
		s.users[b] = s.turn
	}
	if s.planner == nil {
		return
	}
	s.hashes = s.hashes[:0]
	for _, b := range blocks {
		s.hashes = append(s.hashes, hashOf(b))
	}
	s.planner.Observe(policy.Request{Chain: s.hashes, ChunkTokens: req.per, Tokens: req.tokens, PrefillDepth: s.prefillDepth})
}

// miss tells of a block that is to come. One that plans has seen the whole request.
func (s *shelf) miss(b uint32) {
	if s.planner == nil {
		s.policy.Miss(hashOf(b), 1)
	}
}

// wants reports whether the policy finds a block worth the room that it takes.
func (s *shelf) wants(b uint32, coming int) bool {
	return s.planner == nil || s.n+coming < s.capacity || s.planner.Admit(hashOf(b), uint64(s.parents[b]))
}

// makeRoom evicts until another block has room beside the coming ones.
func (s *shelf) makeRoom(coming int, gone func(b uint32)) bool {
	for s.n+coming >= s.capacity {
		id, found := s.policy.Evict(s.goes)
		if !found {
			return false
		}
		s.leave(uint32(id))
		gone(uint32(id))
	}
	return true
}

// leave drops what the policy has evicted. Its parent may go then, if it is here.
func (s *shelf) leave(b uint32) {
	s.drop(b)
	if up := s.parents[b]; up != 0 {
		if s.kids[up-1]--; s.kids[up-1] == 0 && s.resident[up-1] && s.users[up-1] != s.turn {
			s.policy.Allow(policy.ID(up - 1))
		}
	}
}

// enter uses the blocks of a prompt that are here and adds the others, from the
// tail. There is room for them.
func (s *shelf) enter(blocks []uint32, came func(b uint32)) {
	for i := len(blocks) - 1; i >= 0; i-- {
		b := blocks[i]
		s.users[b] = s.turn
		if !s.resident[b] {
			s.add(b)
			s.adopt(b)
			came(b)
		} else if s.planner == nil {
			s.policy.Touch(policy.ID(b))
		}
	}
}

// touch uses those of some blocks that are here, from the tail.
func (s *shelf) touch(blocks []uint32) {
	for i := len(blocks) - 1; i >= 0 && s.planner == nil; i-- {
		if s.resident[blocks[i]] {
			s.policy.Touch(policy.ID(blocks[i]))
		}
	}
}

// put adds a block, and makes those before it as young as it is.
func (s *shelf) put(b uint32) {
	s.add(b)
	s.adopt(b)
	for up := s.parents[b]; up != 0 && s.renewer != nil; up = s.parents[up-1] {
		if s.resident[up-1] {
			s.renewer.Renew(policy.ID(up - 1))
		}
	}
}

// end lets the blocks of the request go that may.
func (s *shelf) end(blocks []uint32) {
	s.turn++
	for _, b := range blocks {
		if s.resident[b] && s.kids[b] == 0 {
			s.policy.Allow(policy.ID(b))
		}
	}
}
