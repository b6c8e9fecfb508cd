package radix

// Many chains growing side by side leave holes too small for the runs they grow
// to. When free slots exceed a twelfth of the used ones, pages are emptied one
// after the other into free slots elsewhere, a few runs with each change of
// the tree, so that memory stays within a constant factor of the chunks stored.
const (
	repackStep  = 128           // slots moved with one change, and at most a run more
	repackFloor = 2 * pageSlots // free room that is nobody's worry
)

// repack moves some runs out of the page that is being emptied.
func (t *Tree) repack() {
	for moved := 0; moved < repackStep; {
		slot := t.slots.nextLeaving()
		if slot == 0 {
			return
		}
		id := t.slots.owner(slot)
		r := t.runs.at(id)
		start := t.slots.alloc(int(r.len), id)
		t.moveSlots(r.space, r.start, start, int(r.len))
		t.freeSlots(r)
		r.start, r.head, r.tail = start, 0, 0
		moved += int(r.len)
	}
}

func (s *slots) isLeaving(slot uint32) bool {
	return s.leaving != 0 && slot>>pageBits == s.leaving
}

// nextLeaving returns a slot whose run has to move, or 0.
func (s *slots) nextLeaving() uint32 {
	if s.leaving == 0 && !s.chooseLeaving() {
		return 0
	}
	slot := s.leaving << pageBits
	for s.owner(slot) == 0 {
		slot += uint32(s.size(slot))
	}
	return slot
}

// chooseLeaving takes the next page, in turn, of which a sixteenth is free.
// In turn, because the emptiest may be the very one that is being filled.
func (s *slots) chooseLeaving() bool {
	used := (len(s.pages)-len(s.vacant))*pageSlots - s.free
	if s.free < used/12+repackFloor {
		return false
	}
	for range s.pages {
		s.sweep = (s.sweep + 1) % uint32(len(s.pages))
		free := s.frees[s.sweep]
		if s.sweep == 0 || free < pageSlots/16 || free == pageSlots {
			continue // slot 0 cannot leave, and an empty page needs no help
		}
		p, first := s.pages[s.sweep], s.sweep<<pageBits
		for o := uint32(0); o < pageSlots; {
			if p.run[o] != 0 {
				o++
				continue
			}
			s.drop(first + o)
			o += uint32(s.size(first + o))
		}
		s.leaving = s.sweep
		return true
	}
	return false
}
