package index

import "testing"

// A trim looks at each block twice, and at a slice of them with each change: no change
// pays for all, and the budget holds all the same.
func TestTrimCost(t *testing.T) {
	f := newFixture(t, Options{Bytes: 4 << 20})
	a, b := f.open("a"), f.open("b")
	looked, most, stored := int64(0), int64(0), 0
	for i := 0; f.x.Stats().Trimmed < 100_000; i++ {
		f.store([]*Shard{a, b}[i%2], prompt(i, 1+i%8))
		stored += 1 + i%8
		if got := f.x.bytes.Load(); got > 4<<20 {
			t.Fatalf("%d bytes after prompt %d", got, i)
		}
		most = max(most, f.x.sweep.looked-looked)
		looked = f.x.sweep.looked
	}
	if most > 3*trimSlice {
		t.Errorf("one change looked at %d blocks", most)
	}
	st := f.x.Stats()
	if each := looked / st.Trimmed; each > 60 {
		t.Errorf("%d looks for each of %d blocks that went", each, st.Trimmed)
	}
	if st.Bytes < 4<<20*7/8 {
		t.Errorf("%d bytes are left", st.Bytes)
	}
	check(t, a)
	check(t, b)
	t.Logf("%d blocks stored, %d went, %d looks for each, %d at most with one change", stored, st.Trimmed, looked/st.Trimmed, most)
}

// Ages that differ by a thousandth share a class, and an older block is never in a younger
// one's.
func TestAgeClass(t *testing.T) {
	last := -1
	for age := uint64(0); age < 1<<32; age += 1 + age/5000 {
		c := ageClass(uint32(age))
		if c < last || c > last+1 || c >= ageClasses {
			t.Fatalf("age %d has class %d behind %d, of %d", age, c, last, ageClasses)
		}
		last = c
	}
	if c := ageClass(1<<32 - 1); c != ageClasses-1 {
		t.Errorf("the oldest has class %d of %d", c, ageClasses)
	}
}
