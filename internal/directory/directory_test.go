package directory

import (
	"testing"

	"github.com/kvstored/kvstored/key"
)

func newPair(t *testing.T, arena int64) (*Directory, *Reader) {
	t.Helper()
	mem := make([]byte, Bytes(arena))
	d, err := New(mem, arena)
	if err != nil {
		t.Fatal(err)
	}
	r, err := Open(mem)
	if err != nil {
		t.Fatal(err)
	}
	return d, r
}

func keyOf(n byte) key.Key { return key.Key{Hash: key.Hash{n}, Space: key.SpaceID{1}} }

func TestPutFindClear(t *testing.T) {
	d, r := newPair(t, 1<<30)
	d.Put(keyOf(1), 8*AlignBytes, 100, 7)
	p, ok := r.Find(keyOf(1))
	if !ok || p.Offset != 8*AlignBytes || p.Size != 100 || p.Sum != 7 || !r.Holds(p) {
		t.Fatalf("%+v %v", p, ok)
	}
	if _, ok := r.Find(keyOf(2)); ok {
		t.Error("a key that was never put is found")
	}
	d.Clear(keyOf(1), 9*AlignBytes)
	if !r.Holds(p) {
		t.Error("Clear of another place counts")
	}
	d.Clear(keyOf(1), 8*AlignBytes)
	if r.Holds(p) {
		t.Error("a place holds after Clear")
	}
	if _, ok := r.Find(keyOf(1)); ok {
		t.Error("a key is found after Clear")
	}
}

func TestVoid(t *testing.T) {
	d, r := newPair(t, 1<<30)
	d.Put(keyOf(1), 0, 100, 7)
	p, ok := r.Find(keyOf(1))
	d.Void()
	if _, still := r.Find(keyOf(1)); !ok || still || r.Holds(p) {
		t.Error("a place holds after Void")
	}
}
