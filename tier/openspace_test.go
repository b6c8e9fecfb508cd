package tier_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
	"github.com/kvstored/kvstored/tier/tiertest"
)

// quoted is a disk that has more of a space than its quota once it knows that
// the space is under one.
type quoted struct {
	*tiertest.Memory
	assigned, trimmed *atomic.Bool
}

func (q quoted) Assign(key.SpaceID, int)                             { q.assigned.Store(true) }
func (q quoted) Requote([]ledger.Requota, map[key.SpaceID]int) error { return nil }
func (q quoted) OverQuota() bool                                     { return q.assigned.Load() }

func (q quoted) Trim(ctx context.Context, n int64, out []key.Key) ([]key.Key, error) {
	if q.assigned.Load() {
		q.trimmed.Store(true)
	}
	return q.Memory.Trim(ctx, n, out)
}

// What a space has on disk above its quota goes when the space is opened, not
// with the next write.
func TestOpenSpaceTrimsTheDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := quoted{tiertest.NewMemory("disk", 64*mib), new(atomic.Bool), new(atomic.Bool)}
		r := newRig(t, options{disk: q.Memory, planner: q, quotas: []tier.Quota{{Match: "*", Bytes: size}}})
		synctest.Wait()
		r.OpenSpace(tiertest.Chain(1, 1).Space, "model")
		synctest.Wait()
		if !q.trimmed.Load() {
			t.Error("nobody trims the disk")
		}
	})
}
