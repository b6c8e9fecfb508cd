package simulate

import "github.com/kvstored/kvstored/policy"

// cache is a set of resident blocks that is asked for one block at a time.
type cache interface {
	has(b uint32) bool
	access(at int, b uint32) (hit bool) // number at of the trace; b is resident then
	len() int
}

// flat plays requests block by block.
type flat struct{ cache }

func (f *flat) request(at int, blocks []uint32) (prefix, hits int) {
	for prefix < len(blocks) && f.has(blocks[prefix]) {
		prefix++
	}
	for i, b := range blocks {
		if f.access(at+i, b) {
			hits++
		}
	}
	return prefix, hits
}

// store is a cache under one policy. The policy's IDs and hashes are the
// numbers of the blocks.
type store struct {
	policy   policy.Policy
	capacity int
	resident []bool
	parents  []uint32 // of each block: number + 1, 0 = none
	n        int
	now      int // number of the access at hand
}

// newStore is a store without a policy.
func newStore(t *Trace, capacity int) *store {
	return &store{capacity: capacity, resident: make([]bool, t.Distinct()), parents: t.parents}
}

func (s *store) len() int { return s.n }

func (s *store) has(b uint32) bool { return s.resident[b] }

func (s *store) access(at int, b uint32) (hit bool) {
	s.now = at
	if s.resident[b] {
		s.policy.Touch(policy.ID(b))
		return true
	}
	s.policy.Miss(hashOf(b), 1)
	for s.n >= s.capacity {
		id, _ := s.policy.Evict(anything)
		s.drop(uint32(id))
	}
	s.add(b)
	return false
}

func anything(policy.ID) bool { return true }

func (s *store) add(b uint32) {
	m := s.told(policy.ID(b))
	m.Parent = uint64(s.parents[b])
	s.policy.Add(policy.ID(b), m)
	s.resident[b] = true
	s.n++
}

// told is what a policy may ask of a block.
func (s *store) told(id policy.ID) policy.Meta {
	return policy.Meta{Hash: hashOf(uint32(id)), Size: 1}
}

// drop ends the residency of what the policy has evicted.
func (s *store) drop(b uint32) {
	s.resident[b] = false
	s.n--
}

// unused is the policy of a cache that never evicts.
type unused struct{}

func (unused) Miss(uint64, int64)                           {}
func (unused) Add(policy.ID, policy.Meta)                   {}
func (unused) Touch(policy.ID)                              {}
func (unused) Remove(policy.ID)                             {}
func (unused) Evict(func(policy.ID) bool) (policy.ID, bool) { return 0, false }
func (unused) Allow(policy.ID)                              {}
func (unused) Steps() uint64                                { return 0 }
