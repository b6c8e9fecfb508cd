package policy

// sampleRound is how many of the watched one Sample counts: some 100 µs.
const sampleRound = 4096

// training is a training beside the calls of the policy: it counts a few of the
// watched at a time, and fits a copy of the observations.
type training struct {
	p       *tenure
	learner learner // nothing is watched in it; thin is as it was when the rest was copied
	at      int     // watched before it were looked at
}

func (p *tenure) Defer() {
	if p.deferred == nil {
		p.deferred = &training{p: p}
	}
}

func (p *tenure) Due() bool { return p.deferred != nil && p.due() }

func (p *tenure) Training() Training {
	if !p.Due() {
		return nil
	}
	p.untrained = 0
	l, from := &p.deferred.learner, &p.learner
	l.hits, l.gone, l.highest, l.thin = from.hits, from.gone, from.highest, from.thin
	l.waiting = [classes][bins]float64{}
	p.deferred.at = 0
	return p.deferred
}

// Sample may miss some that are unwatched meanwhile, and count others twice:
// they are few of many.
func (s *training) Sample() bool {
	n := len(s.p.learner.watched)
	from, to := min(s.at, n), min(s.at+sampleRound, n)
	s.p.sample(&s.learner, from, to)
	s.at = to
	return to < n
}

func (s *training) Fit() { s.learner.fit() }

// Apply leaves a ranking alone that is newer, because the first hint of a
// kind came meanwhile.
func (s *training) Apply() {
	if s.learner.highest == s.p.learner.highest {
		s.p.apply(&s.learner)
	}
}
