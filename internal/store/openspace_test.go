package store_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/internal/store"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/policy"
	"github.com/kvstored/kvstored/tier/tiertest"
)

// quoted is a disk with a ledger.
type quoted struct {
	*tiertest.Memory
	ledger  *ledger.Ledger
	trimmed *atomic.Bool // while a quota was exceeded
}

func (q quoted) Ledger() *ledger.Ledger { return q.ledger }
func (q quoted) Room(uint32) int        { return 1 << 20 }

func (q quoted) Trim(ctx context.Context, n int64, out []key.Key) ([]key.Key, error) {
	if q.ledger.OverQuota() {
		q.trimmed.Store(true)
	}
	return q.Memory.Trim(ctx, n, out)
}

// What a space has on disk above its quota goes when the space is opened, not
// with the next write.
func TestOpenSpaceTrimsTheDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lru, err := policy.New("lru", 64*mib)
		if err != nil {
			t.Fatal(err)
		}
		q := quoted{Memory: tiertest.NewMemory("disk", 64*mib), trimmed: new(atomic.Bool)}
		q.ledger = ledger.New(ledger.Options{CapacityBytes: 64 * mib, Policy: lru, Quotas: []ledger.Quota{{Bytes: size}}})
		c := tiertest.Chain(1, 1)
		q.ledger.Restore(ledger.Entry{Key: c.Key(0), Size: 2 * size}, key.Hash{})
		r := newRig(t, options{disk: q.Memory, planner: q, quotas: []store.Quota{{Match: "*", Bytes: size}}})
		synctest.Wait()
		if q.trimmed.Load() {
			t.Fatal("a quota is exceeded before the space is open")
		}
		r.Operator.OpenSpace(c.Space, "model")
		synctest.Wait()
		if !q.trimmed.Load() {
			t.Error("nothing trims the disk")
		}
	})
}
