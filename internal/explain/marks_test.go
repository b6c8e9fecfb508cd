package explain

import "testing"

// TestMarks: however long it goes on there are few marks, the first and the last among them.
func TestMarks(t *testing.T) {
	const start, step = 1_000_000, 700
	m, now, n := newMarks(start), int64(start), uint64(0)
	is := Tiers{Write: "auto"}
	for range 100_000 {
		now, n = now+step, n+10
		m.note(now, func() Tiers { return is }, func() (uint64, uint64) { return n, n / 2 })
		if len(m.list) > mostMarks {
			t.Fatalf("%d marks", len(m.list))
		}
	}
	if got := m.since(0, n, n/2); got.AskedTokens != n || got.HitTokens != n/2 || got.Since.UnixMilli() != start {
		t.Errorf("of all: %+v", got)
	}
	half := (start + now) / 2
	got := m.since(half, n, n/2)
	since := got.Since.UnixMilli()
	if off := since - half; off < 0 || off > 600_000 {
		t.Errorf("the mark of the middle is %d ms off", off)
	}
	if want := uint64((now - since) / step * 10); got.AskedTokens < want-10 || got.AskedTokens > want+10 {
		t.Errorf("%d tokens were asked for since, want about %d", got.AskedTokens, want)
	}
}
