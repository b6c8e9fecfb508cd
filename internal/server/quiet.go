package server

import (
	"cmp"
	"encoding/hex"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/kvstored/kvstored/internal/base"
	"github.com/kvstored/kvstored/key"
)

// revocationQuiet is how long the log says nothing more of leases and fills that
// end without their client, once it has told of one. All are counted.
const revocationQuiet = time.Second

// revocations are the leases and fills that were revoked until the log tells of them.
type revocations struct{ base.Quiet[int] }

// log counts a job or fill that was revoked, and tells of it and of those that
// were since the log told of one last.
func (r *revocations) log(log *zerolog.Logger, what string, id uint64, why string) {
	if n, tell := r.Add(time.Now(), revocationQuiet, base.Increment); tell {
		log.Warn().Uint64(what, id).Str("why", why).Int("times", n).Msg("leases were revoked; see revoked_total")
	}
}

const (
	// slowPrefix is how long a prefix may take to be ready before the log tells of it.
	slowPrefix = time.Second
	// deadlineQuiet is how long the log says nothing more of late and slow prefixes, once it
	// has told of some.
	deadlineQuiet = time.Minute
)

// deadlineStats sums up prefixes that came after their deadline, or slowly, until the log tells of
// them.
type deadlineStats struct{ base.Quiet[deadlineSum] }

// deadlineSum is what the log tells at once.
type deadlineSum struct {
	late, slow int
	tokens     uint64 // that did not come in time
	longest    time.Duration
}

// count adds a prefix that took so long, and lacks so many tokens that were late.
func (s *deadlineSum) count(took time.Duration, lacks uint64) {
	if lacks > 0 {
		s.late++
		s.tokens += lacks
	} else {
		s.slow++
	}
	s.longest = max(s.longest, took)
}

// log counts the prefix of a job if it was late or slow, and tells of it and of those that
// were since the log told last.
func (l *deadlineStats) log(log *zerolog.Logger, s *missed, space []byte, lacks uint64) {
	took := s.took // 0 of one that its client let go of before it was ready
	if lacks == 0 && took < slowPrefix {
		return
	}
	if sum, tell := l.Add(time.Now(), deadlineQuiet, func(s *deadlineSum) { s.count(took, lacks) }); tell {
		log.Warn().Int("late", sum.late).Int("slow", sum.slow).Uint64("late_tokens", sum.tokens).Dur("longest", sum.longest).
			Hex("space", space).Str("lookup_id", s.name.lookupID).
			Msg("prefixes came after the deadline of their prefetch, or took longer than a second; see prefix_ready_seconds and kvstored why")
	}
}

const (
	// maxConflictSpaces bounds the spaces that are counted each by itself; the
	// others share a count.
	maxConflictSpaces = 128
	// conflictsQuiet is how long the log says nothing more of a space.
	conflictsQuiet = time.Minute
)

// conflicts counts chunks that a client would have stored with other bytes
// than are stored under their key, or with another length. The first copy
// stays. Its mutex is a leaf.
type conflicts struct {
	mu struct {
		sync.Mutex
		spaces map[key.SpaceID]*conflictCount
		others conflictCount // of spaces beyond maxConflictSpaces
	}
}

// conflictCount counts the chunks of one space.
type conflictCount struct {
	n    uint64
	told base.Quiet[uint64]
}

// add counts a chunk, and returns how many the log should tell of now; 0: none.
func (d *conflicts) add(id key.SpaceID, now time.Time) uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.mu.spaces[id]
	if s == nil && len(d.mu.spaces) < maxConflictSpaces {
		if d.mu.spaces == nil {
			d.mu.spaces = make(map[key.SpaceID]*conflictCount)
		}
		s = new(conflictCount)
		d.mu.spaces[id] = s
	}
	s = cmp.Or(s, &d.mu.others)
	s.n++
	n, _ := s.told.Add(now, conflictsQuiet, base.Increment)
	return n
}

// counts is how many there were of each space by its id in hexadecimal, and
// under "others" of the spaces that are not counted by themselves.
func (d *conflicts) counts() map[string]uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := make(map[string]uint64, len(d.mu.spaces)+1)
	for id, s := range d.mu.spaces {
		out[hex.EncodeToString(id[:])] = s.n
	}
	if d.mu.others.n > 0 {
		out["others"] = d.mu.others.n
	}
	return out
}

// logConflict counts a chunk that is stored with other bytes than a client has for
// it, and says so in the log.
func logConflict(c *session, chain *key.Chain, i int, noticed string) {
	c.server.count.differs.Add(1)
	n := c.server.conflicts.add(chain.Space, time.Now())
	if n == 0 {
		return
	}
	space := c.server.catalog.space(chain.Space)
	c.log.Warn().Hex("space", chain.Space[:]).Str("model", space.Model).Int("rank", space.Worker).Int("ranks", space.World).
		Hex("key", chain.Hashes[i][:]).Uint64("chunks", n).Str("noticed", noticed).
		Msg("other bytes under a known key: the first copy stays, and is what every client gets; " +
			"either the engine's bytes vary from run to run, as on a GPU, or its keys do not tell apart what differs (rank, dtype, layout, weights)")
}
