package index

import (
	"reflect"
	"testing"
)

func TestDump(t *testing.T) {
	x, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	a, b := Worker{ID: "a"}, Worker{ID: "b", Rank: 1}
	for _, w := range []Worker{a, b} {
		if err := x.Register(w, WorkerOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	s, err := x.Open(Name{Model: "m"}, Config{BlockTokens: 4})
	if err != nil {
		t.Fatal(err)
	}
	for _, store := range []struct {
		at     At
		hashes []uint64
	}{{At{Worker: a}, []uint64{1, 2}}, {At{Worker: a, Medium: Disk}, []uint64{1}}, {At{Worker: b, Medium: CPU}, []uint64{1, 2}}} {
		if _, err := s.Store(store.at, Root, store.hashes); err != nil {
			t.Fatal(err)
		}
	}
	want := []Held{
		{1, Root, []Holder{{a, []Medium{GPU, Disk}}, {b, []Medium{CPU}}}},
		{2, After(1), []Holder{{a, []Medium{GPU}}, {b, []Medium{CPU}}}},
	}
	if got := s.Dump(10); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got)
	}
	if got := s.Dump(1); !reflect.DeepEqual(got, want[:1]) {
		t.Errorf("one of them: %+v", got)
	}
}
