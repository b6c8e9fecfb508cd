package disk

import (
	"context"
	"maps"

	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

var (
	_ tier.Resident  = (*Keeper)(nil)
	_ tier.Bounded   = (*Keeper)(nil)
	_ tier.Tunable   = (*Keeper)(nil)
	_ tier.Recoverer = (*Keeper)(nil)
	_ tier.Reopener  = (*Keeper)(nil)
	_ tier.Health    = (*Keeper)(nil)
	_ tier.Scrubber  = (*Keeper)(nil)
	_ tier.Rebuilder = (*Keeper)(nil)
	_ tier.Summed    = (*Keeper)(nil)
	_ tier.Unsettled = (*Keeper)(nil)
)

// Name is "disk".
func (k *Keeper) Name() string { return "disk" }

// Contains is Tier.Contains.
func (k *Keeper) Contains(ctx context.Context, ks []key.Key, have []bool) error {
	return k.says(k.now.Load().Contains(ctx, ks, have))
}

// Get is Tier.Get.
func (k *Keeper) Get(ctx context.Context, key key.Key, a tier.Allocator) (arena.Block, error) {
	b, err := k.now.Load().Get(ctx, key, a)
	return b, k.says(err)
}

// Put is Tier.Put.
func (k *Keeper) Put(ctx context.Context, e tier.Entry) error {
	return k.says(k.now.Load().Put(ctx, e))
}

// Delete is Tier.Delete.
func (k *Keeper) Delete(ctx context.Context, ks []key.Key) error {
	return k.says(k.now.Load().Delete(ctx, ks))
}

// Trim is Tier.Trim.
func (k *Keeper) Trim(ctx context.Context, n int64, out []key.Key) ([]key.Key, error) {
	out, err := k.now.Load().Trim(ctx, n, out)
	return out, k.says(err)
}

// Recover is Tier.Recover.
func (k *Keeper) Recover(ctx context.Context, emit func([]tier.Record)) error {
	return k.says(k.now.Load().Recover(ctx, emit))
}

// Records is Tier.Records.
func (k *Keeper) Records(ctx context.Context, ks []key.Key) ([]tier.Record, error) {
	recs, err := k.now.Load().Records(ctx, ks)
	return recs, k.says(err)
}

// Sync is Tier.Sync.
func (k *Keeper) Sync(ctx context.Context) error { return k.says(k.now.Load().Sync(ctx)) }

// Scrub is Tier.Scrub.
func (k *Keeper) Scrub(ctx context.Context, bytesPerSecond int64, gone func(key.Key)) (tier.Scrubbed, error) {
	sum, err := k.now.Load().Scrub(ctx, bytesPerSecond, gone)
	return sum, k.says(err)
}

// Stats is Tier.Stats; of one that has never been open it is little.
func (k *Keeper) Stats() tier.Stats {
	t := k.now.Load()
	if t.segments == nil {
		return tier.Stats{CapacityBytes: k.o.CapacityBytes, Policy: t.ledger.PolicyName(), Quotas: tier.QuotasOf(t.ledger), Off: true}
	}
	st := t.Stats()
	st.Off = k.Off()
	return st
}

// DatabasePid is the id of the process of the database, which may have ended
// just now; 0 before the tier has been open.
func (k *Keeper) DatabasePid() int {
	if t := k.now.Load(); t.db != nil {
		return t.db.Pid()
	}
	return 0
}

// Has is Tier.Has; it goes by what the tier had when it was open.
func (k *Keeper) Has(key key.Key) bool { return k.now.Load().Has(key) }

// Sum implements tier.Summed.
func (k *Keeper) Sum(key key.Key) (sum uint64, size uint32, known bool) { return k.now.Load().Sum(key) }

// Touch is Tier.Touch.
func (k *Keeper) Touch(ks []key.Key) { k.now.Load().Touch(ks) }

// Unsettled implements tier.Unsettled.
func (k *Keeper) Unsettled(key key.Key) bool { return k.now.Load().Unsettled(key) }

// Left implements tier.Unsettled.
func (k *Keeper) Left(id key.SpaceID) []key.Key { return k.now.Load().Left(id) }

// Ledger implements tier.Bounded: that of the tier that is open, or was last.
func (k *Keeper) Ledger() *ledger.Ledger { return k.now.Load().ledger }

// Room implements tier.Bounded.
func (k *Keeper) Room(size uint32) int { return k.now.Load().Room(size) }

// StandOn implements tier.Tunable.
func (k *Keeper) StandOn(works func() ledger.Below) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.mu.works = works
	k.Ledger().StandOn(works)
}

// SetPolicy implements tier.Tunable.
func (k *Keeper) SetPolicy(name string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.Ledger().SetPolicy(name)
}

// Assign implements tier.Tunable.
func (k *Keeper) Assign(space key.SpaceID, quota int) {
	k.quoting.Lock()
	defer k.quoting.Unlock()
	k.mu.Lock()
	k.mu.spaces[space] = quota
	k.mu.Unlock()
	k.Ledger().Assign(space, quota)
}

// Requote implements tier.Tunable. A tier that is opened later gets the quotas
// afresh. It looks at all entries, so lookups, which need mu, do not wait for it.
func (k *Keeper) Requote(qs []ledger.Requota, under map[key.SpaceID]int) error {
	k.quoting.Lock()
	defer k.quoting.Unlock()
	k.mu.Lock()
	k.mu.quotas, k.mu.spaces = make([]ledger.Requota, len(qs)), make(map[key.SpaceID]int, len(under))
	maps.Copy(k.mu.spaces, under)
	for i, q := range qs {
		k.mu.quotas[i] = ledger.Requota{Quota: q.Quota, Was: -1}
	}
	k.mu.Unlock()
	return k.Ledger().Requote(qs, under)
}
