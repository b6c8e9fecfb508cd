package base

import (
	"math/rand/v2"
	"testing"
	"unsafe"
)

// tableModel is a table as lists, one for each bucket, the key written last at the end.
type tableModel struct {
	of      *Table[int, int16]
	buckets map[uint64][][2]int
}

func (m *tableModel) bucket(k int) uint64 {
	return m.of.sum(k) % uint64(len(m.of.mu.slots)/ways)
}

func (m *tableModel) find(k int) int16 {
	for _, e := range m.buckets[m.bucket(k)] {
		if e[0] == k {
			return int16(e[1])
		}
	}
	return 0
}

func (m *tableModel) change(k int, v int16, keep bool) {
	at := m.bucket(k)
	var list [][2]int
	for _, e := range m.buckets[at] {
		if e[0] != k {
			list = append(list, e)
		}
	}
	if keep {
		list = append(list, [2]int{k, int(v)})
	}
	m.buckets[at] = list[max(0, len(list)-ways):]
}

// TestTable: a table answers as lists of the last keys written in each bucket do.
func TestTable(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 24))
		table := NewTable[int, int16](1 + r.IntN(200))
		m := &tableModel{table, make(map[uint64][][2]int)}
		for range 5000 {
			k, v, keep := r.IntN(400), int16(1+r.IntN(100)), r.IntN(5) > 0
			table.Change(k, func(had int16) (int16, bool) {
				if want := m.find(k); had != want {
					t.Errorf("seed %d: %d had %d, want %d", seed, k, had, want)
				}
				return v, keep
			})
			m.change(k, v, keep)
			if k = r.IntN(400); table.Find(k) != m.find(k) {
				t.Fatalf("seed %d: %d is %d, want %d", seed, k, table.Find(k), m.find(k))
			}
		}
		n, want := 0, 0
		table.Each(func(int16) { n++ })
		for _, b := range m.buckets {
			want += len(b)
		}
		if n != want {
			t.Errorf("the table has %d keys, want %d", n, want)
		}
	}
}

// TestTableMemory: a slot has 12 bytes beside its value, and writing allocates nothing.
func TestTableMemory(t *testing.T) {
	if n := unsafe.Sizeof(slot[[3]uint32]{}); n != 24 {
		t.Errorf("a slot has %d bytes", n)
	}
	table, k := NewTable[[4]uint64, uint32](1000), [4]uint64{}
	if n := testing.AllocsPerRun(100, func() {
		k[2]++
		table.Change(k, func(had uint32) (uint32, bool) { return had + 1, true })
		table.Find(k)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
