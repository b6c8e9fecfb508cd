package tier

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kvstored/kvstored/internal/fair"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/key"
)

// settleBatch bounds how many entries are settled under one hold of the
// index's lock (about 100 us).
const settleBatch = 256

// matchBatch bounds how much of a chain is matched under one hold of the index's
// lock, and between two looks whether others shall go first.
const matchBatch = 4096

// askBatch is how many keys a tier is asked about at most at a time while it
// is still being scanned.
const askBatch = 64

// askFor bounds how long a lookup asks it: the connection waits meanwhile, and
// a shorter prefix is always an answer.
const askFor = 50 * time.Millisecond

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
	In  [Places]Count // each chunk at the nearest tier that has it
	Hot int           // how many chunks at the start of the run are in DRAM
}

// scratch is what one call over a chain needs; calls borrow one so that they
// allocate nothing per chunk.
type scratch struct {
	at    []uint8
	keys  []key.Key
	sizes []uint32
}

var scratches = sync.Pool{New: func() any { return new(scratch) }}

func borrow(n int) *scratch {
	sc := scratches.Get().(*scratch)
	if cap(sc.at) < n {
		sc.at = make([]uint8, n)
	}
	sc.at = sc.at[:n]
	sc.keys, sc.sizes = sc.keys[:0], sc.sizes[:0]
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
// the disk tier is still being scanned it is asked for what is not yet known.
// What only a tier has that is switched off does not count.
func (s *Stack) Match(ctx context.Context, c *key.Chain, search Set) (Match, error) {
	sc := borrow(c.Len())
	defer sc.give()
	known := s.locateFor(ctx, c, sc.at)
	if s.recovering.Load() {
		fair.Leave(ctx)
		if err := s.ask(ctx, c, sc, &known); err != nil {
			return Match{}, err
		}
	}
	return measure(c, sc.at[:known], search&^s.off()), nil
}

// locate copies the location bits of the known part of c into at. Of chunks
// that stand alone all are, and those that are not known have none.
func (s *Stack) locate(c *key.Chain, at []uint8) int {
	return s.locateFor(context.Background(), c, at)
}

// locateFor is locate for a request that lets others go first (see fair.Yield).
func (s *Stack) locateFor(ctx context.Context, c *key.Chain, at []uint8) (known int) {
	for to := 0; known == to && to < c.Len(); {
		if to > 0 {
			fair.Yield(ctx)
		}
		if c.Alone {
			from := to
			to = min(to+settleBatch, c.Len())
			s.locateAlone(c, from, to, at)
			known = to
			continue
		}
		to = min(to+matchBatch, c.Len())
		known = s.locateOn(c, known, to, at)
	}
	return known
}

// locateOn is locate for chunks from..to, of which those before are known.
func (s *Stack) locateOn(c *key.Chain, from, to int, at []uint8) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.tree.MatchOn(c.Space, c.Hashes[:to], from, c.Chained, at)
}

func (s *Stack) locateAlone(c *key.Chain, from, to int, at []uint8) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := from; i < to; i++ {
		at[i], _ = s.mu.tree.Get(c.Space, c.Hashes[i])
	}
}

// eachAlone calls fn for chunks from..to with the index's lock held, as
// long as there is no error. It lets others have the lock in between.
func (s *Stack) eachAlone(from, to int, fn func(i int) error) error {
	for from < to {
		end := min(from+settleBatch, to)
		if err := s.someAlone(from, end, fn); err != nil {
			return err
		}
		from = end
	}
	return nil
}

func (s *Stack) someAlone(from, to int, fn func(i int) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := from; i < to; i++ {
		if err := fn(i); err != nil {
			return err
		}
	}
	return nil
}

func measure(c *key.Chain, at []uint8, search Set) Match {
	var m Match
	hot := true
	for i := c.Skip; i < len(at); i++ {
		p, ok := (Set(at[i]) & search).nearest()
		if !ok {
			break
		}
		if hot = hot && p == CPU; hot {
			m.Hot++
		}
		m.add(c.Tokens[i])
		m.In[p].add(c.Tokens[i])
	}
	return m
}

// ask extends what is known of c by what the disk tier has but has not yet
// handed over.
func (s *Stack) ask(ctx context.Context, c *key.Chain, sc *scratch, known *int) error {
	probe, cancel := context.WithTimeout(ctx, askFor)
	defer cancel()
	var have [askBatch]bool
	batch := 1 // most prompts that are not known are not there at all
	for i := c.Skip; i < c.Len(); {
		if i < *known && sc.at[i] != 0 {
			i++
			continue
		}
		ks := sc.chain(c, i, min(i+batch, c.Len()))
		batch = min(2*batch, askBatch)
		clear(have[:])
		if err := s.tiers[Disk].Contains(probe, ks, have[:len(ks)]); err != nil {
			s.log.Debug().Err(err).Msg("the disk tier does not say what it has")
			return ctx.Err() // otherwise it has nothing: the prefix ends here
		}
		n := 0
		for n < len(ks) && have[n] {
			n++
		}
		if n == 0 {
			return nil
		}
		if err := s.learn(c, i, i+n, Disk); err != nil {
			return nil // it contradicts what is known: the prefix ends here
		}
		*known = s.locate(c, sc.at)
		i += n
	}
	return nil
}

// indexed reports whether p is known to have k.
func (s *Stack) indexed(p Place, k key.Key) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	at, _ := s.mu.tree.Get(k.Space, k.Hash)
	return Set(at).Has(p)
}

// learn sets the bit of p for chunks from..to of c.
func (s *Stack) learn(c *key.Chain, from, to int, p Place) error {
	if c.Alone {
		return s.eachAlone(from, to, func(i int) error {
			return s.add(c, c.Hashes[i:i+1], 0, p)
		})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.add(c, c.Hashes[:to], from, p)
}

// add is learn for a chain of hashes, with the index's lock held. DRAM is
// settled anyway.
func (s *Stack) add(c *key.Chain, hashes []key.Hash, from int, p Place) error {
	if err := s.mu.tree.Add(c.Space, hashes, from, uint8(Of(p))); err != nil || p == CPU {
		return err
	}
	for _, h := range hashes[from:] {
		s.stood(p, key.Key{Space: c.Space, Hash: h}, Of(p))
	}
	return nil
}

// Sum is the checksum of chunk i of c and its bytes, if DRAM has it or a tier
// below knows it without I/O.
func (s *Stack) Sum(o ledger.Owner, c *key.Chain, i int) (sum uint64, size uint32, known bool) {
	var refs [1]Ref
	if n, _ := s.Hold(o, ledger.IO, c, i, i+1, refs[:]); n == 1 {
		defer s.Release(o, ledger.IO, refs[:])
		return refs[0].Block.Sum(), uint32(refs[0].Block.Len()), true
	}
	for _, t := range s.tiers {
		if t, ok := under[Summed](t); ok && !known {
			sum, size, known = t.Sum(key.Key{Space: c.Space, Hash: c.Hashes[i]})
		}
	}
	return sum, size, known
}

// Hold takes chunks from..to of c as far as they are in DRAM and within
// budget, and returns how many. The error only says why a budget made it
// shorter.
func (s *Stack) Hold(o ledger.Owner, cl ledger.Class, c *key.Chain, from, to int, refs []Ref) (int, error) {
	sc := borrow(0)
	defer sc.give()
	ks := sc.chain(c, from, to)
	n, err := s.hot.Hold(o, cl, ks, refs)
	for n < len(ks) && err == nil && s.readmit(ks[n]) {
		var more int
		if more, err = s.hot.Hold(o, cl, ks[n:], refs[n:]); more == 0 {
			break
		}
		n += more
	}
	if n < len(ks) && err == nil {
		s.settle(CPU, ks[n]) // the index believed it was there
	}
	if cl == ledger.Lease {
		n = s.verified(o, cl, ks, refs[:n])
		for _, w := range s.writers {
			w.touched(c, from, refs[:n])
		}
	}
	return n, err
}

// verified checks a sample of what was just held. At a chunk whose bytes are
// wrong the run ends: it is dropped, and what was held behind it given back.
func (s *Stack) verified(o ledger.Owner, cl ledger.Class, ks []key.Key, refs []Ref) int {
	for i, ok := s.verify.next(0, len(refs)); ok; i, ok = s.verify.next(i+1, len(refs)) {
		if refs[i].Block.Verify() {
			continue
		}
		s.log.Error().Hex("hash", ks[i].Hash[:]).Msg("a chunk in DRAM no longer has its checksum; it is dropped and recomputed")
		s.dropCorrupt(context.Background(), ks[i])
		s.hot.Release(o, cl, refs[i:])
		return i
	}
	return len(refs)
}

// sampler picks every so-manieth of a stream.
type sampler struct {
	every atomic.Uint64 // 0 = none
	seen  atomic.Uint64
}

// next returns the first pick in from..to.
func (s *sampler) next(from, to int) (int, bool) {
	every := s.every.Load()
	if every == 0 || from >= to {
		return 0, false
	}
	n := uint64(to - from)
	before := s.seen.Add(n) - n
	skip := (every - 1 - before%every)
	if skip >= n {
		return 0, false
	}
	s.seen.Add(-(n - skip - 1)) // what lies behind the pick is not seen yet
	return from + int(skip), true
}

// Touch counts one use of chunks from..to of c, in every tier that has them:
// what is hit in DRAM must not grow old on disk. Tail first, so that a head
// is younger than its tail. It is called once for each request, when that
// knows what it got; loading and committing count no use.
func (s *Stack) Touch(c *key.Chain, from, to int) {
	sc := borrow(0)
	defer sc.give()
	ks := sc.chain(c, from, to)
	for _, t := range s.tiers {
		if r, ok := t.(Resident); ok {
			r.Touch(ks)
		}
	}
}

// Release gives back what Hold took.
func (s *Stack) Release(o ledger.Owner, cl ledger.Class, refs []Ref) {
	s.hot.Release(o, cl, refs)
}

// holds reports whether a bounded tier has k, or DRAM's writers have it still.
func (s *Stack) holds(p Place, k key.Key) bool {
	if p == CPU {
		return s.inHot(k)
	}
	t, bounded := s.tiers[p].(Resident)
	return bounded && t.Has(k)
}

// settle brings the index's bit of p for each key in line with what the tier
// holds now.
func (s *Stack) settle(p Place, ks ...key.Key) {
	for len(ks) > 0 {
		part := ks[:min(settleBatch, len(ks))]
		s.mu.Lock()
		for _, k := range part {
			s.mark(k, p, s.holds(p, k))
		}
		s.mu.Unlock()
		ks = ks[len(part):]
	}
}

// settleRecords is settle for entries the index may not know (any more). It
// returns those that contradict what is known, which no lookup will find.
func (s *Stack) settleRecords(p Place, recs []Record) (lost []key.Key) {
	_, bounded := s.tiers[p].(Resident)
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range recs {
		r := &recs[i]
		if bounded && !s.holds(p, r.Key) {
			s.mark(r.Key, p, false)
			continue
		}
		if err := s.mu.tree.Insert(r.Key.Space, r.Parent, r.Key.Hash, uint8(Of(p))); err != nil {
			lost = append(lost, r.Key)
			continue
		}
		at, _ := s.mu.tree.Get(r.Key.Space, r.Key.Hash)
		s.stood(p, r.Key, Set(at))
	}
	s.count.inconsistent.Add(uint64(len(lost)))
	return lost
}

// attach is settleRecords for what a tier below has; what has no place in the
// index is deleted there: no lookup finds it, and it would be in the way of
// what is stored under its key.
func (s *Stack) attach(ctx context.Context, p Place, recs []Record) {
	lost := s.settleRecords(p, recs)
	if len(lost) == 0 {
		return
	}
	s.log.Warn().Int("chunks", len(lost)).Stringer("tier", p).Msg("chunks contradict the prompts that are known and are deleted")
	if err := s.tiers[p].Delete(ctx, lost); err != nil {
		s.log.Error().Err(err).Stringer("tier", p).Msg("chunks that contradict the prompts that are known stay")
	}
}

// mark notes whether p has k, if the index knows k; called with its lock held.
func (s *Stack) mark(k key.Key, p Place, has bool) {
	set, clear := uint8(0), uint8(Of(p))
	if has {
		set, clear = clear, set
	}
	at, _ := s.mu.tree.Set(k.Space, k.Hash, set, clear)
	s.stood(p, k, Set(at))
}
