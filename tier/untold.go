package tier

import (
	"context"
	"sync"

	"github.com/kvstored/kvstored/key"
)

// untold is the checksums of what was stored while the disk tier could not say
// what it had: should it turn out to have other bytes under such a key, those
// are the older ones, and go. It is empty once a scan has come to its end. At
// most maxMissed are remembered.
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
	if len(u.mu.sums) < maxMissed {
		u.mu.sums[k] = sum
	}
}

// sum is what was stored under k last.
func (u *untold) sum(k key.Key) (sum uint64, ok bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	sum, ok = u.mu.sums[k]
	return sum, ok
}

func (u *untold) forget() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.mu.sums = nil
}

// dropOutlived deletes on disk what a scan has brought and was stored anew
// since, while the disk could not be asked.
func (s *Stack) dropOutlived(ctx context.Context, recs []Record) {
	var ks []key.Key
	for i := range recs {
		k := recs[i].Key
		if sum, ok := s.untold.sum(k); ok && s.writers[0].hasOther(k, sum) {
			ks = append(ks, k)
		}
	}
	if len(ks) == 0 {
		return
	}
	if err := s.tiers[Disk].Delete(ctx, ks); err != nil {
		s.log.Error().Err(err).Msg("chunks that were stored anew while the disk could not be asked stay there with their old bytes")
	}
	s.count.replaced.Add(uint64(len(ks)))
	s.settle(Disk, ks...)
}
