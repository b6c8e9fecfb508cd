package writeback

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
)

// rule says when a chunk is written. While the tier has room for all, that is right
// after its commit. Once the tier has evicted something a copy of a chunk that
// DRAM has would be in the place of another chunk: so with WhileRoom chunks wait until DRAM
// evicts them, a flush comes, or they are too old. The two change over at any moment, as
// nothing but the start of a write depends on it.
type rule struct {
	auto bool        // WhileRoom
	full atomic.Bool // chunks wait
	// unsafeAge is how long a chunk may wait in a full tier's queue, in nanoseconds;
	// 0 = for ever.
	unsafeAge atomic.Int64
	began     time.Time // ages are counted from there

	looking sync.Mutex // guards last and mark; held around a look at the tier
	last    occupancy
	mark    int64 // bytes that the full tier was left with by its last eviction
}

// roomAgain is the share of its content that a full tier must lose, in eighths, to
// count as one with room: more than lies between the usual watermarks.
const roomAgain = 1

// defers reports whether chunks that are committed wait until DRAM evicts them.
func (r *rule) defers() bool { return r.full.Load() }

// clock is the age of the writer in seconds, as items have it.
func (r *rule) clock() uint32 { return uint32(time.Since(r.began) / time.Second) }

// old is the time at or before which the chunks that are held came that are to be
// written now; false if they may be of any age.
func (r *rule) old() (before uint32, bounded bool) {
	age := time.Duration(r.unsafeAge.Load())
	since := time.Since(r.began) - age
	if age == 0 || since < 0 {
		return 0, false
	}
	return uint32(since / time.Second), true
}

// occupancy is how full a tier is, and its evictions: all, and those for the quotas of
// spaces.
type occupancy struct{ used, evicted, forQuotas int64 }

func (t *Tier) occupancy() (o occupancy) {
	if t.Bounded == nil {
		st := t.Tier.Stats()
		return occupancy{used: st.UsedBytes, evicted: int64(st.Evictions)}
	}
	st := t.Bounded.Ledger().Stats()
	o.used, o.evicted = st.UsedBytes, int64(st.Evictions)
	for _, quota := range t.Bounded.Ledger().Quotas() {
		o.forQuotas += int64(quota.Evictions)
	}
	return o
}

// lacksRoom reports whether the tier has evicted since it was looked at before, and not
// because a space was over its quota. Quotas that were replaced begin at 0 again.
func (o occupancy) lacksRoom(before occupancy) bool {
	quotas := o.forQuotas - before.forQuotas
	return quotas >= 0 && o.evicted-before.evicted > quotas
}

// look looks whether the tier has room for all, and reports whether that has changed.
func (r *rule) look(to *Tier, log *zerolog.Logger) (changed bool) {
	news := ""
	if r.auto {
		news = r.update(to)
	}
	if news != "" {
		log.Info().Stringer("tier", to.Place).Msg(news)
	}
	return news != ""
}

// update is look, with what the log is to say; "" where nothing has changed.
func (r *rule) update(to *Tier) (news string) {
	r.looking.Lock()
	defer r.looking.Unlock()
	o := to.occupancy()
	before := r.last
	r.last = o
	switch full := r.full.Load(); {
	case o.lacksRoom(before):
		if r.mark = o.used; full {
			return ""
		}
		news = "the tier is full: chunks are written when DRAM evicts them, or are old (write.mode auto)"
	case !full || o.used > r.mark/8*(8-roomAgain):
		return ""
	default:
		news = "the tier has room again: chunks are written when they are committed (write.mode auto)"
	}
	r.full.Store(!r.full.Load())
	return news
}
