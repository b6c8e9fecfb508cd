package ledger

import (
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/policy"
)

// Rank is how long an entry is retained in comparison: those without a rank go
// first, then those of the lowest.
type Rank uint8

// MaxRank is the highest rank.
const MaxRank Rank = 4

// retained is the order in which entries with a rank go: by rank, and in each the
// one used longest ago first. They stay in the policies of their scopes, where the one
// of all refuses them. A rank spares nothing from a quota, and counts for nothing once
// entries with a rank occupy more than most.
type retained struct {
	ranks [MaxRank]policy.Policy
	most  int64
}

// init makes the orders, which take no memory before they have something. Half of a
// tier is for entries without a rank: a new one would go at once otherwise.
func (r *retained) init(capacity int64) {
	for i := range r.ranks {
		r.ranks[i], _ = policy.New("lru", 0) // there is one of that name
	}
	r.most = capacity / 2
}

// of is the order that has an entry; nil for one without a rank.
func (r *retained) of(e *entry) policy.Policy {
	if k := e.rank; k > 0 {
		return r.ranks[k-1]
	}
	return nil
}

func (r *retained) touch(e *entry, id policy.ID) {
	if p := r.of(e); p != nil {
		p.Touch(id)
	}
}

func (r *retained) allow(e *entry, id policy.ID) {
	if p := r.of(e); p != nil {
		p.Allow(id)
	}
}

func (r *retained) add(e *entry, id policy.ID) {
	if p := r.of(e); p != nil {
		p.Add(id, policy.Meta{Size: 1})
	}
}

func (r *retained) remove(e *entry, id policy.ID) {
	if p := r.of(e); p != nil {
		p.Remove(id)
	}
}

func (r *retained) steps() (n uint64) {
	for _, p := range r.ranks {
		n += p.Steps()
	}
	return n
}

// Retain gives the resident ones of hs, chunks of a space, their ranks: they go after
// all that has a lower one, and none is 0. It protects nothing: a retained entry is
// evicted where there is nothing else. A rank ends with the residency. Chunks that are
// not resident are passed over.
func Retain(l *Ledger, space key.SpaceID, hs []key.Hash, ranks []Rank) {
	rounds(l, hs, func(b *book, from int, some []key.Hash) {
		for i, h := range some {
			b.retain(b.find(key.Key{Space: space, Hash: h}), min(ranks[from+i], MaxRank))
		}
	})
}

func (b *book) retain(id uint32, rank Rank) {
	e := b.entries.at(id)
	if e.life != resident || e.rank == rank {
		return
	}
	b.order.retained.remove(e, policy.ID(id))
	b.countRetained(e, -1)
	e.rank = rank
	b.order.retained.add(e, policy.ID(id))
	b.countRetained(e, 1)
	if rank == 0 && b.evictable(e) {
		b.order.allow(id)
	}
}

// countRetained counts an entry with a rank, or takes it back.
func (b *book) countRetained(e *entry, n int64) {
	if e.rank > 0 {
		b.count.RetainedBytes += n * b.bytes(e)
	}
}

// nextRetained takes out the first of the retained entries that may go as a leaf.
func (o *order) nextRetained() (id uint32, found bool) {
	for _, p := range o.retained.ranks {
		if victim, ok := p.Evict(o.leaf); ok {
			id = uint32(victim)
			o.retained.add(o.entries.at(id), victim) // remove takes it out of all
			o.remove(id)
			return id, true
		}
	}
	return 0, false
}

// unretained is ok for the policy of all.
func (t *table) unretained(id policy.ID) bool {
	e := t.entries.at(uint32(id))
	return t.evictable(e) && e.rank == 0
}
