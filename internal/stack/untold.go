package stack

import (
	"context"
	"sync"

	"github.com/kvstored/kvstored/internal/departed"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

// untold is the checksums of chunks stored while a tier could not be
// asked: should it turn out to have other bytes under such a key, those
// are the older ones, and go. It is empty once a scan has come to its end. At
// most maxRetry are remembered.
type untold struct {
	mu struct {
		sync.Mutex
		sums map[key.Key]uint64
	}
}

func (u *untold) add(k key.Key, sum uint64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.mu.sums == nil {
		u.mu.sums = make(map[key.Key]uint64)
	}
	if len(u.mu.sums) < maxRetry {
		u.mu.sums[k] = sum
	}
}

// sum is the checksum of the chunk stored under k last.
func (u *untold) sum(k key.Key) (sum uint64, ok bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	sum, ok = u.mu.sums[k]
	return sum, ok
}

func (u *untold) reset() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.mu.sums = nil
}

// dropOutlived deletes in a tier what a scan has brought and was stored anew
// since, while the tier could not be asked.
func (r *recovery) dropOutlived(ctx context.Context, l *level, recs []tier.Record) {
	var ks []key.Key
	for i := range recs {
		k := recs[i].Key
		if sum, ok := l.scan.untold.sum(k); ok && l.writer.hasOther(k, sum) {
			ks = append(ks, k)
		}
	}
	if len(ks) == 0 {
		return
	}
	if err := l.tier.Delete(ctx, ks); err != nil {
		r.log.Error().Err(err).Stringer("tier", l.place).Msg("chunks that were stored anew while the tier could not be asked stay there with their old bytes")
	}
	r.count.replaced.Add(uint64(len(ks)))
	r.index.syncGone(l.place, departed.Lost, ks...)
}
