package store

import (
	"context"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/internal/stale"
	"github.com/kvstored/kvstored/internal/writeback"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

// matchBatch bounds how many chunks are matched in one hold of the index's lock.
const matchBatch = 4096

// askBatch is how many keys a tier is asked about at most at a time while it
// is still being scanned.
const askBatch = 64

// askFor bounds how long a lookup asks it: the connection waits meanwhile, and
// a shorter prefix is always an answer.
const askFor = 50 * time.Millisecond

// Lookups finds out how much of a chain the tiers have.
type Lookups struct {
	levels     *levels
	index      *tierIndex
	promotions *promotions
	writers    *writeback.Writers
	ages       *stale.Book
	distrusted *stale.Distrusted
	absences   *absences
	log        zerolog.Logger
}

// Count is chunks and the tokens in them.
type Count struct {
	Chunks int
	Tokens uint64
}

func (c *Count) add(tokens uint32) {
	c.Chunks++
	c.Tokens += uint64(tokens)
}

// Match is the longest leading run of a chain, from its Skip on, of which
// every chunk is in some tier of the search range.
type Match struct {
	Count
	In  [tier.Places]Count // each chunk at the nearest tier that has it
	Hot int                // how many chunks at the start of the run are in DRAM
}

// scratch is what one call over a chain needs; calls borrow one so that they
// allocate nothing per chunk.
type scratch struct {
	at      []uint8
	marks   []uint8 // of the same chunks, where they were asked for
	keys    []key.Key
	sizes   []uint32
	entries []ledger.Entry
}

var scratches = sync.Pool{New: func() any { return new(scratch) }}

func borrow(n int) *scratch {
	sc := scratches.Get().(*scratch)
	if cap(sc.at) < n {
		sc.at = make([]uint8, n)
	}
	sc.at = sc.at[:n]
	sc.keys, sc.sizes, sc.marks = sc.keys[:0], sc.sizes[:0], nil
	return sc
}

func (sc *scratch) give() { scratches.Put(sc) }

// chain fills keys with chunks from..to of c.
func (sc *scratch) chain(c *key.Chain, from, to int) []key.Key {
	sc.keys = sc.keys[:0]
	for _, h := range c.Hashes[from:to] {
		sc.keys = append(sc.keys, key.Key{Space: c.Space, Hash: h})
	}
	return sc.keys
}

// Match looks the chain up in the index, in memory only, except that while
// a tier is still being scanned it is asked for the chunks that are not yet known. A chunk
// that only a tier has that is switched off does not count.
func (l *Lookups) Match(ctx context.Context, c *key.Chain, search tier.Set) (Match, error) {
	sc := borrow(c.Len())
	defer sc.give()
	known, err := l.locateOrAsk(ctx, c, sc)
	if err != nil {
		return Match{}, err
	}
	return measure(&l.levels.nearest, c, sc.at[:known], search&^l.levels.off()), nil
}

// locateOrAsk is locate, which also asks the tiers that are being scanned.
func (l *Lookups) locateOrAsk(ctx context.Context, c *key.Chain, sc *scratch) (known int, err error) {
	scanning := l.levels.scanning() // before the index: what a scan brings is there before it ends
	f := l.promotions.fence()
	known = l.locateBehind(f, c, 0, sc.at, sc.marks)
	if scanning == 0 || l.distrusted.Has(c.Space) {
		return known, nil
	}
	for _, level := range l.levels.below {
		if scanning.Has(level.Place) && err == nil {
			known, err = l.ask(ctx, f, level, c, sc, known)
		}
	}
	return known, err
}

// locate copies the location bits of chunks from..len(at) of c into at, as far as
// they are known, and returns up to which they are. Of chunks that stand alone all
// are, with none where they are not known. The chunks before cost nothing and may
// be unknown.
func (l *Lookups) locate(c *key.Chain, from int, at []uint8) (known int) {
	return l.locateBehind(l.promotions.fence(), c, from, at, nil)
}

// locateBehind is locate without the chunks that f deletes. Chunks that are over, or
// of a distrusted space, are nowhere, in each case. Unless marks is nil it copies the marks of chunks there; not
// those of chunks that stand alone.
func (l *Lookups) locateBehind(f fence, c *key.Chain, from int, at, marks []uint8) (known int) {
	if known = from; c.Alone {
		known = len(at)
		l.index.matchEach(c, from, known, at)
	}
	for more := known < len(at); more; {
		to := min(known+matchBatch, len(at))
		known, more = l.index.match(c, known, to, at, marks)
		more = more || known == to && to < len(at)
	}
	f.apply(c, from, at[:known])
	l.ages.EachExpired(c.Space, c.Hashes[from:known], func(i int) { at[from+i] = 0 })
	if l.distrusted.Has(c.Space) {
		clear(at[from:known])
	}
	return known
}

// measure counts the leading run of what at says of c.
func measure(nearest *[1 << tier.Places]tier.Place, c *key.Chain, at []uint8, search tier.Set) Match {
	var m Match
	hot := true
	for i := c.Skip; i < len(at); i++ {
		p := nearest[tier.Set(at[i])&search&tier.All]
		if p == tier.Places {
			break
		}
		if hot = hot && p == tier.CPU; hot {
			m.Hot++
		}
		m.add(c.Tokens[i])
		m.In[p].add(c.Tokens[i])
	}
	return m
}

// ask extends the known part of c by chunks that a tier has but has not yet handed over.
func (l *Lookups) ask(ctx context.Context, f fence, of *level, c *key.Chain, sc *scratch, known int) (int, error) {
	probe, cancel := context.WithTimeout(ctx, askFor)
	defer cancel()
	var have [askBatch]bool
	batch := 1 // most prompts that are not known are not there at all
	for i := c.Skip; i < c.Len(); {
		if i < known && sc.at[i] != 0 {
			i++
			continue
		}
		ks := sc.chain(c, i, min(i+batch, c.Len()))
		batch = min(2*batch, askBatch)
		clear(have[:])
		if err := of.Tier.Tier.Contains(probe, ks, have[:len(ks)]); err != nil {
			l.log.Debug().Err(err).Stringer("tier", of.Place).Msg("a tier that is being scanned does not say what it has")
			return known, ctx.Err() // otherwise it has nothing: the prefix ends here
		}
		n, most := 0, f.before(ks, of.Place)
		for n < most && have[n] {
			n++
		}
		if n == 0 {
			return known, nil
		}
		l.index.add(c, i, i+n, of.Place)
		known = l.locateBehind(f, c, 0, sc.at, sc.marks)
		i += n
	}
	return known, nil
}
