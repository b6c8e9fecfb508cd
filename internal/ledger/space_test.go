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
		l.Tuning().Assign(space(i), 0)
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

func TestSpaceBytes(t *testing.T) {
	lru, err := policy.New("lru", 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	l := New(Options{CapacityBytes: 1 << 20, Policy: lru})
	k := key.Key{Space: key.SpaceID{1}, Hash: key.Hash{1}}
	id, _, err := l.Begin(Daemon, Lease, k, key.Hash{}, 5000)
	if err != nil {
		t.Fatal(err)
	}
	l.Publish([]ID{id}, false)
	if n, other := l.SpaceBytes(k.Space), l.SpaceBytes(key.SpaceID{2}); n != 8192 || other != 0 {
		t.Errorf("%d bytes, and %d of a space without entries; want 8192 and 0", n, other)
	}
	if e, ok := l.Remove(k); ok {
		l.Free(e.ID)
	}
	if n := l.SpaceBytes(k.Space); n != 0 {
		t.Errorf("%d bytes of a space that has lost all it had", n)
	}
}

// Keys names the resident and the filling entries of a space, over however many
// rounds, and none of others or that have left.
func TestKeys(t *testing.T) {
	lru, err := policy.New("lru", 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	l := New(Options{CapacityBytes: 1 << 30, Policy: lru})
	keyOf := func(space, n int) key.Key {
		k := key.Key{Space: key.SpaceID{byte(space)}}
		binary.LittleEndian.PutUint64(k.Hash[:], uint64(n))
		return k
	}
	want := make(map[key.Key]bool)
	for n := range 3 * handOverRound {
		for space := range 2 {
			id, _, err := l.Begin(Daemon, Lease, keyOf(space, n), key.Hash{}, 4096)
			if err != nil {
				t.Fatal(err)
			}
			if n%3 != 0 { // else it is being filled
				l.Publish([]ID{id}, false)
			}
			if n%3 == 1 {
				e, _ := l.Remove(keyOf(space, n))
				l.Free(e.ID)
			}
		}
		if n%3 != 1 {
			want[keyOf(1, n)] = true
		}
	}
	ks := l.Keys(key.SpaceID{1})
	for _, k := range ks {
		if !want[k] {
			t.Fatalf("%v is named", k)
		}
	}
	if len(ks) != len(want) || len(l.Keys(key.SpaceID{7})) != 0 {
		t.Errorf("%d are named, want %d", len(ks), len(want))
	}
}
