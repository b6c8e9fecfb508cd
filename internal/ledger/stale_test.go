package ledger

import (
	"encoding/binary"
	"testing"

	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/policy"
)

// What cannot go any more is dropped from a line on the way to what can, in
// rounds of a bounded length; a leaf that would be lost is spared meanwhile.
func TestStaleEntriesAreDroppedInRounds(t *testing.T) {
	const n = 3*maxRound + 10
	p, err := policy.New("lru", 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	l := New(Options{CapacityBytes: 1 << 30, Policy: p, Limits: Limits{Unwritten: 4096}})
	l.Tuning().StackOn(func() Below { return 1 })
	var ks []key.Key
	var ids []ID
	var parent key.Hash
	for i := range uint64(n + 2) {
		var k key.Key
		binary.BigEndian.PutUint64(k.Hash[:], i+1)
		id, _, err := l.Begin(Daemon, IO, k, parent, 4096)
		if err != nil {
			t.Fatal(err)
		}
		ks, ids, parent = append(ks, k), append(ids, id), k.Hash
	}
	l.Publish(ids, false)
	l.SetDirty(ids[n+1], true)
	for _, k := range ks[:n+1] {
		l.SetBelow(k, 1, true)
	}
	for _, k := range ks[:n] { // in line, and cannot go
		l.SetBelow(k, 1, false)
	}
	if err := l.Charge(Daemon, Unwritten, 4096); err != nil { // the writer is full
		t.Fatal(err)
	}
	rounds := 0
	e, ok := l.evictFirst(func(b *book, works mark) (Entry, bool) {
		rounds++
		return b.evict(everything, works, false)
	})
	if !ok || e.Key != ks[n] {
		t.Errorf("evicted %x, %t; want what is below", e.Key.Hash[:8], ok)
	}
	if want := n/maxRound + 1; rounds != want {
		t.Errorf("%d rounds, want %d", rounds, want)
	}
	if err := l.Check(); err != nil {
		t.Error(err)
	}
}
