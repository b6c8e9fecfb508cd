package tiertest

import (
	"slices"
	"testing"

	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

func testHas(t *testing.T, s *suite) {
	r := s.resident()
	c := s.putChain(1, 2, 5000)
	if !r.Has(c.Key(0)) || !r.Has(c.Key(1)) {
		t.Error("what was just stored is not resident")
	}
	if err := s.Tier.Delete(t.Context(), Keys(c, 0, 1)); err != nil {
		t.Fatal(err)
	}
	if r.Has(c.Key(0)) || !r.Has(c.Key(1)) {
		t.Errorf("after the deletion of the first: %t, %t; want false, true", r.Has(c.Key(0)), r.Has(c.Key(1)))
	}
}

func testTrimWithRoom(t *testing.T, s *suite) {
	r := s.resident()
	s.putChain(1, 2, 5000)
	gone, err := r.Trim(t.Context(), 4096, nil)
	if err != nil || len(gone) != 0 {
		t.Errorf("trim with room to spare evicted %d entries, error %v", len(gone), err)
	}
}

const trimSize = 64 * kib

// fillTwo stores two chains, each with three tenths of the capacity, the
// first before the second.
func (s *suite) fillTwo() (r tier.Resident, old, young *key.Chain) {
	s.t.Helper()
	r = s.resident()
	capacity := s.Tier.Stats().CapacityBytes
	if capacity < 16*mib || capacity > 64*mib {
		s.t.Fatalf("the subject has a capacity of %d bytes; the suite needs 16 to 64 MiB", capacity)
	}
	n := int(capacity * 3 / 10 / trimSize)
	return r, s.putChain(1, n, trimSize), s.putChain(2, n, trimSize)
}

// trim asks for a little more than there is, and checks that what Trim says
// is gone are exactly the entries that are.
func (s *suite) trim(r tier.Resident, chains ...*key.Chain) []key.Key {
	s.t.Helper()
	st := s.Tier.Stats()
	mark := Chain(99, 1).Key(0)
	out, err := r.Trim(s.t.Context(), st.CapacityBytes-st.UsedBytes+1, []key.Key{mark})
	if err != nil {
		s.t.Fatalf("trim: %v", err)
	}
	if len(out) < 2 || out[0] != mark {
		s.t.Fatalf("trim made %d keys of one; want more, appended", len(out))
	}
	gone := make(map[key.Key]bool)
	for _, k := range out[1:] {
		if gone[k] {
			s.t.Errorf("%s was evicted twice", k)
		}
		gone[k] = true
	}
	for _, c := range chains {
		ks := Keys(c, 0, c.Len())
		for i, has := range s.have(ks) {
			if has == gone[ks[i]] || r.Has(ks[i]) != has {
				s.t.Errorf("chunk %d: contained %t, resident %t, evicted %t", i, has, r.Has(ks[i]), gone[ks[i]])
			}
		}
	}
	now := s.Tier.Stats()
	if got := now.Evictions - st.Evictions; got != uint64(len(gone)) {
		s.t.Errorf("%d evictions were counted of %d", got, len(gone))
	}
	if now.UsedBytes >= st.UsedBytes {
		s.t.Errorf("%d bytes used, %d before", now.UsedBytes, st.UsedBytes)
	}
	return out[1:]
}

// wantTail checks that gone is the tail of c, last chunk first.
func wantTail(t *testing.T, gone []key.Key, c *key.Chain) {
	t.Helper()
	want := Keys(c, max(0, c.Len()-len(gone)), c.Len())
	slices.Reverse(want)
	if !slices.Equal(gone, want) {
		t.Errorf("evicted %s; want the tail of the least recent chain, last chunk first: %s", gone, want)
	}
}

func testTrimOrder(t *testing.T, s *suite) {
	r, old, young := s.fillTwo()
	wantTail(t, s.trim(r, old, young), old)
}

func testTouchProtects(t *testing.T, s *suite) {
	r, old, young := s.fillTwo()
	r.Touch(Keys(old, 0, old.Len()))
	r.Touch(Keys(Chain(3, 2), 0, 2)) // absent ones are passed over
	wantTail(t, s.trim(r, old, young), young)
}
