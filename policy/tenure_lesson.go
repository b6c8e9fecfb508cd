package policy

// lookRound is how many of the watched one Look counts: some 100 µs.
const lookRound = 4096

// lesson learns beside the calls: it counts a few at a time, and thinks over a
// copy of what was observed.
type lesson struct {
	p       *tenure
	learner learner // nothing is watched in it; thin is as it was when the rest was copied
	at      int     // watched before it were looked at
}

func (p *tenure) Defer() {
	if p.deferred == nil {
		p.deferred = &lesson{p: p}
	}
}

func (p *tenure) Due() bool { return p.deferred != nil && p.due() }

func (p *tenure) Lesson() Lesson {
	if !p.Due() {
		return nil
	}
	p.unlearnt = 0
	l, from := &p.deferred.learner, &p.learner
	l.hits, l.gone, l.highest, l.thin = from.hits, from.gone, from.highest, from.thin
	l.waiting = [classes][bins]float64{}
	p.deferred.at = 0
	return p.deferred
}

// Look may miss some that are unwatched meanwhile, and see others twice: they
// are few of many.
func (s *lesson) Look() bool {
	n := len(s.p.learner.watched)
	from, to := min(s.at, n), min(s.at+lookRound, n)
	s.p.look(&s.learner, from, to)
	s.at = to
	return to < n
}

func (s *lesson) Think() { s.learner.think() }

// Apply leaves a ranking alone that is newer, because the first hint of a
// kind came meanwhile.
func (s *lesson) Apply() {
	if s.learner.highest == s.p.learner.highest {
		s.p.apply(&s.learner)
	}
}
