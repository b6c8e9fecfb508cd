package ledger_test

import (
	"testing"

	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/policy"
)

// A tier's word is exchanged only while the entry is resident and not held: a
// holder may have read it.
func TestExchange(t *testing.T) {
	p, err := policy.New("lru", 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	l := ledger.New(ledger.Options{CapacityBytes: 1 << 20, Policy: p})
	k := key.Key{Hash: key.Hash{1}}
	id, _, err := l.Begin(ledger.Daemon, ledger.IO, k, key.Hash{}, page)
	if err != nil {
		t.Fatal(err)
	}
	l.SetValue(id, ledger.Value{A: 7, B: 9})
	want := func(what string, from uint64, ok bool) {
		t.Helper()
		notes := 0
		got := l.Exchange(id, from, 8, func(e ledger.Entry) {
			if notes++; e.Key != k || e.Value.A != 8 {
				t.Errorf("%s: the note is of %+v", what, e)
			}
		})
		if got != ok || notes > 0 != ok {
			t.Errorf("%s: %t, %d notes", what, got, notes)
		}
	}
	want("while it is filled", 7, false)
	l.Publish([]ledger.ID{id}, false)
	var out [1]ledger.Entry
	if n, err := l.Hold(ledger.Daemon, ledger.IO, []key.Key{k}, out[:]); n != 1 {
		t.Fatal(err)
	}
	want("while it is held", 7, false)
	l.Unhold(ledger.Daemon, ledger.IO, []ledger.ID{id})
	want("from another word", 6, false)
	want("from its own", 7, true)
	want("once more", 7, false)
	if e, _ := l.Find(k); e.Value != (ledger.Value{A: 8, B: 9}) {
		t.Errorf("the words are %+v", e.Value)
	}
	if l.Exchange(id+1000, 7, 8, nil) {
		t.Error("an entry that never was has been changed")
	}
	if _, ok := l.Evict(); !ok {
		t.Fatal("nothing to evict")
	}
	want("once it is evicted", 8, false)
	l.Free(id)
	want("once it is freed", 8, false)
}
