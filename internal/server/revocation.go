package server

import (
	"sync"
	"time"

	"github.com/rs/zerolog"
)

// revocationQuiet is how long the log says nothing more of leases and fills that
// end without their client, once it has told of one. All are counted.
const revocationQuiet = time.Second

// revocations counts leases and fills that were revoked until the log tells of
// them. Its mutex is a leaf.
type revocations struct {
	mu struct {
		sync.Mutex
		untold int
		told   time.Time
	}
}

// add counts one, and returns how many the log should tell of now; 0: none.
func (r *revocations) add(now time.Time) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.untold++
	if !r.mu.told.IsZero() && now.Sub(r.mu.told) < revocationQuiet {
		return 0
	}
	n, r.mu.untold, r.mu.told = r.mu.untold, 0, now
	return n
}

// log counts a job or fill that was revoked, and tells of it and of those that
// were since the log told of one last.
func (r *revocations) log(log *zerolog.Logger, what string, id uint64, why string) {
	if n := r.add(time.Now()); n > 0 {
		log.Warn().Uint64(what, id).Str("why", why).Int("times", n).Msg("leases were revoked; see revoked_total")
	}
}
