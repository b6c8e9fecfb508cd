package ledger

import (
	"encoding/binary"
	"testing"

	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/policy"
)

// Spaces that come and go are not remembered for ever; those that have
// something stay under their quota.
func TestQuotasAreForgotten(t *testing.T) {
	lru, err := policy.New("lru", 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	l := New(Options{CapacityBytes: 1 << 20, Policy: lru, PolicyName: "lru", Quotas: []Quota{{Bytes: 1 << 16}}})
	space := func(i int) (id key.SpaceID) {
		binary.LittleEndian.PutUint64(id[:], uint64(i))
		return id
	}
	used := 3
	for i := range 2*maxQuotas + 100 {
		l.Assign(space(i), 0)
		if i == used {
			id, _, err := l.Begin(Daemon, Lease, key.Key{Space: space(i), Hash: key.Hash{1}}, key.Hash{}, 4096)
			if err != nil {
				t.Fatal(err)
			}
			l.Publish([]ID{id}, false)
		}
	}
	b := &l.mu.book
	if len(b.spaces.quotas) > maxQuotas+1 || len(b.spaces.order) != len(b.spaces.quotas) {
		t.Errorf("%d spaces are remembered, %d in order", len(b.spaces.quotas), len(b.spaces.order))
	}
	if q := l.Quotas()[0]; q.UsedBytes != 4096 || b.spaces.quotas[space(used)] == 0 {
		t.Errorf("a space with 4,096 bytes is under no quota; %d bytes are", q.UsedBytes)
	}
	if err := l.Check(); err != nil {
		t.Error(err)
	}
}
