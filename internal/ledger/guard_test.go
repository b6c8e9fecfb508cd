package ledger

import (
	"testing"
	"unsafe"

	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/policy"
)

// What a chunk takes that is in two tiers under lru is some 28 bytes of the tree
// of all chunks and twice these.
func TestBytesAnEntry(t *testing.T) {
	const tree, node, bucket = 28, 16, 4
	if n := tree + 2*(unsafe.Sizeof(entry{})+bucket+node); n > 96+2*48 {
		t.Errorf("%d bytes", n)
	}
	if n := unsafe.Sizeof(guard{}); n != 20 {
		t.Errorf("a guard is %d bytes", n)
	}
}

// Guards are used again, and what nothing protects has none.
func TestGuardsComeAndGo(t *testing.T) {
	p, err := policy.New("lru", 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	l := New(Options{CapacityBytes: 1 << 20, Policy: p})
	for i := range byte(100) {
		id, _, err := l.Begin(Daemon, Load, key.Key{Hash: key.Hash{i + 1}}, key.Hash{}, 1)
		if err != nil {
			t.Fatal(err)
		}
		if l.mu.book.entries.At(uint32(id)).guard == 0 {
			t.Error("a fill has no guard")
		}
		l.Publish([]ID{id}, false)
		if l.mu.book.entries.At(uint32(id)).guard != 0 {
			t.Error("a guard of nothing")
		}
	}
	if n := l.mu.book.guards.Len(); n > 3 {
		t.Errorf("%d guards", n)
	}
	if err := l.Check(); err != nil {
		t.Error(err)
	}
}
