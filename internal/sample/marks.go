package sample

import (
	"slices"
	"time"
)

const (
	markEvery = 1000 // milliseconds, at first
	// mostMarks bounds how many there are: then each second one goes, and they come half as often.
	mostMarks = 512
)

// mark is how many tokens had been asked for at some time, and how many of these were hit.
type mark struct {
	millis     int64 // of the sample's clock
	asked, hit uint64
}

// marks are the hits of the tiers as they are, over time. A change of the tiers begins them
// anew.
type marks struct {
	list  []mark
	every int64 // milliseconds
	tiers Tiers
}

// newMarks are those of a start, when nothing has been asked for.
func newMarks(millis int64) marks { return marks{list: []mark{{millis: millis}}, every: markEvery} }

// note adds a mark, if it is time.
func (m *marks) note(millis int64, tiers func() Tiers, hits func() (asked, hit uint64)) {
	last := &m.list[len(m.list)-1]
	if len(m.list) > 1 && millis-last.millis < m.every {
		return
	}
	next := mark{millis: millis}
	next.asked, next.hit = hits()
	is := tiers()
	switch {
	case m.tiers == (Tiers{}):
		m.tiers = is // the first time
	case !m.tiers.alike(&is):
		m.tiers = is
		m.list, m.every = append(m.list[:0], next), markEvery
		return
	}
	if m.list = append(m.list, next); len(m.list) > mostMarks {
		n := 0
		m.list = slices.DeleteFunc(m.list, func(mark) bool { n++; return n%2 == 0 })
		m.every *= 2
	}
}

// since counts from the first mark at or after some time, or from the last one.
func (m *marks) since(millis int64, asked, hit uint64) Measured {
	i := 0
	for i+1 < len(m.list) && m.list[i].millis < millis {
		i++
	}
	from := &m.list[i]
	return Measured{Since: time.UnixMilli(from.millis), AskedTokens: asked - from.asked, HitTokens: hit - from.hit}
}
