package disk

import (
	"cmp"
	"slices"

	"github.com/kvstored/kvstored/disk/internal/metadata"
	"github.com/kvstored/kvstored/internal/database"
	"github.com/kvstored/kvstored/key"
)

// resolve sorts entries by place and takes out those that point outside their
// segment, and of two that overlap the one with the lower sequence number: a
// crash came between the reuse of its extent and its deletion. It works in
// place.
func resolve(entries []database.Entry, sizeOf func(segment uint32) int64) (kept []database.Entry, lost []key.Key) {
	slices.SortFunc(entries, func(a, b database.Entry) int {
		return cmp.Or(cmp.Compare(a.Extent.Segment, b.Extent.Segment), cmp.Compare(a.Extent.Offset, b.Extent.Offset), cmp.Compare(b.Seq, a.Seq))
	})
	var segment uint32
	var size int64
	kept = entries[:0]
	for i := range entries {
		e := entries[i]
		if e.Inline {
			if e.Size == 0 || e.Size > metadata.MaxInlineBytes || e.Extent != (database.Extent{}) {
				lost = append(lost, e.Key)
			} else {
				kept = append(kept, e)
			}
			continue
		}
		if e.Extent.Segment != segment {
			segment = e.Extent.Segment
			size = sizeOf(segment)
		}
		if !inBounds(&e, size) {
			lost = append(lost, e.Key)
			continue
		}
		// The kept entries do not overlap, and e starts at or behind the start
		// of the last of them, so that is the only one it can meet.
		if n := len(kept) - 1; n >= 0 && kept[n].Extent.Segment == segment && kept[n].Extent.End() > e.Extent.Offset {
			if kept[n].Seq > e.Seq {
				lost = append(lost, e.Key)
				continue
			}
			lost = append(lost, kept[n].Key)
			kept = kept[:n]
		}
		kept = append(kept, e)
	}
	return kept, lost
}

func inBounds(e *database.Entry, size int64) bool {
	x := e.Extent
	return e.Size > 0 && int64(x.Bytes) == extentBytes(int64(e.Size)) &&
		x.Offset >= 0 && x.Offset%alignBytes == 0 && x.Offset <= size-int64(x.Bytes)
}

// shrink takes out whole segments, the ones used longest ago, until the files
// fit into a capacity that is smaller than it was. A database that is beyond its
// reserve does not count: it costs nothing that is stored while the tier runs
// either.
func (r *recovery) shrink(entries []database.Entry) (kept []database.Entry, evicted []key.Key) {
	t := r.t
	type load struct {
		*segment
		used, n int64
	}
	files, _, _, _ := t.segments.usage()
	over := files - (t.o.CapacityBytes - t.o.MetaReserveBytes)
	if over <= 0 {
		return entries, nil
	}
	loads := make(map[uint32]*load)
	for _, g := range t.segments.all() {
		loads[g.number] = &load{segment: g}
	}
	for i := range entries {
		if l := loads[entries[i].Extent.Segment]; l != nil {
			l.used += int64(entries[i].Used)
			l.n++
		}
	}
	order := make([]*load, 0, len(loads))
	for _, l := range loads {
		l.used /= max(l.n, 1) // empty ones first
		order = append(order, l)
	}
	slices.SortFunc(order, func(a, b *load) int {
		return cmp.Or(cmp.Compare(a.used, b.used), cmp.Compare(a.number, b.number))
	})
	leave := make(map[uint32]bool)
	for _, l := range order {
		if over > 0 && t.segments.oldSize(l.number) > 0 {
			leave[l.number] = true
			over -= l.blocks
		}
	}
	kept = entries[:0]
	for _, e := range entries {
		if leave[e.Extent.Segment] {
			evicted = append(evicted, e.Key)
		} else {
			kept = append(kept, e)
		}
	}
	return kept, evicted
}
