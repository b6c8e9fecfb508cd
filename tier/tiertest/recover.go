package tiertest

import (
	"slices"
	"testing"

	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

// lasting skips tests of what only tiers that outlive the process have.
func (s *suite) lasting() {
	if tier.RolesOf(s.Tier).Recoverer == nil || s.Reopen == nil {
		s.t.Skip("not a tier.Recoverer")
	}
}

// reopen syncs and reopens the subject, whose tier it replaces.
func (s *suite) reopen() tier.Recoverer {
	s.t.Helper()
	if err := tier.RolesOf(s.Tier).Recoverer.Sync(s.t.Context()); err != nil {
		s.t.Fatalf("sync: %v", err)
	}
	s.Tier = s.Reopen()
	return tier.RolesOf(s.Tier).Recoverer
}

// scan recovers r and returns the records that it handed over.
func (s *suite) scan(r tier.Recoverer) map[key.Key]tier.Record {
	s.t.Helper()
	found := make(map[key.Key]tier.Record)
	err := r.Recover(s.t.Context(), func(recs []tier.Record) {
		for _, rec := range recs {
			if _, twice := found[rec.Key]; twice {
				s.t.Errorf("%s was handed over twice", rec.Key)
			}
			found[rec.Key] = rec
		}
	})
	if err != nil {
		s.t.Fatalf("recover: %v", err)
	}
	return found
}

func testRecover(t *testing.T, s *suite) {
	s.lasting()
	const long = 400
	a, b := s.putChain(1, long, 300), Chain(2, len(sizes))
	want := make(map[key.Key]tier.Record)
	for i := range long {
		want[a.Key(i)] = RecordOf(a, i, 300)
	}
	for i, n := range sizes {
		s.put(b, i, n)
		want[b.Key(i)] = RecordOf(b, i, n)
	}
	deleted := a.Key(long - 1)
	if err := s.Tier.Delete(t.Context(), []key.Key{deleted}); err != nil {
		t.Fatal(err)
	}
	delete(want, deleted)
	found := s.scan(s.reopen())
	for k, rec := range want {
		if found[k] != rec {
			t.Errorf("recovered %+v; want %+v", found[k], rec)
		}
	}
	if len(found) != len(want) {
		t.Errorf("%d entries recovered; want %d", len(found), len(want))
	}
	s.wantRecords([]key.Key{b.Key(0), deleted, a.Key(1)}, want[b.Key(0)], want[a.Key(1)])
	for i, n := range sizes {
		s.get(b.Key(i), n)
	}
	if st := s.Tier.Stats(); st.Entries != int64(len(want)) {
		t.Errorf("%d entries counted after recovery; want %d", st.Entries, len(want))
	}
	if r := tier.RolesOf(s.Tier).Resident; r != nil && (!r.Has(a.Key(0)) || r.Has(deleted)) {
		t.Error("Has does not follow what was recovered")
	}
}

// wantRecords checks what the tier tells of ks.
func (s *suite) wantRecords(ks []key.Key, want ...tier.Record) {
	s.t.Helper()
	got, err := tier.RolesOf(s.Tier).Recoverer.Records(s.t.Context(), ks)
	if err != nil || !slices.Equal(got, want) {
		s.t.Errorf("records %+v, error %v; want %+v", got, err, want)
	}
}

// testBeforeRecovery uses a tier before, and while, it is scanned.
func testBeforeRecovery(t *testing.T, s *suite) {
	s.lasting()
	const n = 5000
	c := s.putChain(1, 20, n)
	r := s.reopen()
	s.get(c.Key(7), n)
	for i, has := range s.have(Keys(c, 0, 20)) {
		if !has {
			t.Errorf("chunk %d is not found before the scan", i)
		}
	}
	s.put(c, 3, n) // there already
	s.put(Chain(2, 1), 0, n)
	if err := s.Tier.Delete(t.Context(), Keys(c, 19, 20)); err != nil {
		t.Fatal(err)
	}
	found := s.scan(r)
	for i := range 19 {
		if _, ok := found[c.Key(i)]; !ok {
			t.Errorf("chunk %d was not handed over", i)
		}
	}
	if s.have(Keys(c, 19, 20))[0] {
		t.Error("the scan brought back what was deleted before it")
	}
	s.get(Chain(2, 1).Key(0), n)
}
