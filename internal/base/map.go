package base

import "maps"

// A map that had more than least entries is made anew when it has one part in share of
// them left, and no more than few: copying these takes some 100 us, and the owner of the
// map has its lock meanwhile.
const (
	least = 1 << 10
	share = 8
	few   = 1 << 10
)

// Delete deletes k from *m, and makes the map anew where it has become small.
// That takes as long as the deletions since then took together, at most. peak belongs to
// the map and begins with 0: the most entries that a deletion has found in it. Entries
// leave the map by way of Delete only, and not while it is walked.
func Delete[K comparable, V any](m *map[K]V, k K, peak *int) {
	*peak = max(*peak, len(*m))
	delete(*m, k)
	if *peak <= least || len(*m) > min(*peak/share, few) {
		return
	}
	fewer := make(map[K]V, len(*m))
	maps.Copy(fewer, *m)
	*m, *peak = fewer, len(fewer)
}
