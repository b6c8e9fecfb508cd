package server

import (
	"sync"
	"time"

	"github.com/rs/zerolog"
)

const (
	// slowPrefix is how long a prefix may take to be ready before the log tells of it.
	slowPrefix = time.Second
	// latenessQuiet is how long the log says nothing more of late and slow prefixes, once it
	// has told of some.
	latenessQuiet = time.Minute
)

// lateness sums up prefixes that came after their deadline, or slowly, until the log tells of
// them. Its mutex is a leaf.
type lateness struct {
	mu struct {
		sync.Mutex
		sum  latenessSum
		told time.Time
	}
}

// latenessSum is what the log tells at once.
type latenessSum struct {
	late, slow int
	tokens     uint64 // that did not come in time
	longest    time.Duration
}

// add counts a prefix that took so long, and lacks so many tokens that were late. It returns
// what the log should tell now, and whether it should.
func (l *lateness) add(now time.Time, took time.Duration, lacks uint64) (sum latenessSum, tell bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := &l.mu.sum; lacks > 0 {
		s.late++
		s.tokens += lacks
	} else {
		s.slow++
	}
	l.mu.sum.longest = max(l.mu.sum.longest, took)
	if !l.mu.told.IsZero() && now.Sub(l.mu.told) < latenessQuiet {
		return sum, false
	}
	sum, l.mu.sum, l.mu.told = l.mu.sum, latenessSum{}, now
	return sum, true
}

// log counts the prefix of a job if it was late or slow, and tells of it and of those that
// were since the log told last.
func (l *lateness) log(log *zerolog.Logger, s *shortfall, space []byte, lacks uint64) {
	took := s.took // 0 of one that its client let go of before it was ready
	if lacks == 0 && took < slowPrefix {
		return
	}
	if sum, tell := l.add(time.Now(), took, lacks); tell {
		log.Warn().Int("late", sum.late).Int("slow", sum.slow).Uint64("late_tokens", sum.tokens).Dur("longest", sum.longest).
			Hex("space", space).Str("lookup_id", s.name.lookupID).
			Msg("prefixes came after the deadline of their prefetch, or took longer than a second; see prefix_ready_seconds and kvstored why")
	}
}
