package stale

import (
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kvstored/kvstored/internal/base"
	"github.com/kvstored/kvstored/key"
)

const (
	// Grace is for how long a stamp is kept whether or not a tier has the chunk.
	Grace = 10 * time.Second

	// round bounds how many chunks are looked at under one hold of the mutex.
	round = 256
)

// Book is the ages of the chunks of a store. It is safe for concurrent use.
type Book struct {
	started time.Time        // with the reading of the monotonic clock
	now     func() time.Time // so too
	wall    func() int64     // seconds since 1970

	bounds  atomic.Bool // something has, or had, a bound
	removed atomic.Uint64
	mu      struct {
		sync.RWMutex
		spaces map[key.SpaceID]*space
		peak   int // of spaces
		slots  calendar
		stamps int
	}
}

// space is what a Book knows of one space.
type space struct {
	open   int    // clients
	most   uint32 // seconds that each chunk may have; 0: no bound
	stamps map[key.Hash]held
	peak   int // of stamps
}

// held is a stamp in a Book.
type held struct {
	Stamp
	noted uint32 // when it was told last
}

// New makes an empty book. Nothing has a bound.
func New() *Book {
	return newBook(time.Now(), time.Now, func() int64 { return time.Now().Unix() })
}

func newBook(started time.Time, now func() time.Time, wall func() int64) *Book {
	b := &Book{started: started, now: now, wall: wall}
	b.mu.spaces = make(map[key.SpaceID]*space)
	b.mu.slots.lists = make(map[uint32][]key.Key)
	return b
}

// Open notes that one client more has a space open, in which chunks may become so old,
// 0 for no bound. It is known until each has called Close, and while it has stamps. Open
// reports whether the space had no bound, or a longer one, before: chunks that are there
// already are for the caller to Stamp.
func (b *Book) Open(id key.SpaceID, most time.Duration) (shorter bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	sp := b.space(id)
	sp.open++
	return b.bound(sp, most)
}

// Close ends what Open began.
func (b *Book) Close(id key.SpaceID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	sp := b.mu.spaces[id]
	sp.open--
	b.drop(id, sp)
}

// Bound replaces the bound of a space, and reports as Open does. A stamp that
// there is keeps its end.
func (b *Book) Bound(id key.SpaceID, most time.Duration) (shorter bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	sp := b.space(id)
	defer b.drop(id, sp)
	return b.bound(sp, most)
}

// Most is the bound of a space that is open; 0 for none.
func (b *Book) Most(id key.SpaceID) time.Duration {
	b.mu.RLock()
	defer b.mu.RUnlock()
	if sp := b.mu.spaces[id]; sp != nil {
		return time.Duration(sp.most) * time.Second
	}
	return 0
}

func (b *Book) bound(sp *space, most time.Duration) (shorter bool) {
	was := sp.most
	sp.most = uint32(most / time.Second)
	if sp.most == 0 {
		return false
	}
	b.bounds.Store(true)
	return was == 0 || sp.most < was
}

// space is the entry of a space, made where there is none. The mutex is held.
func (b *Book) space(id key.SpaceID) *space {
	sp := b.mu.spaces[id]
	if sp == nil {
		sp = new(space)
		b.mu.spaces[id] = sp
	}
	return sp
}

// drop forgets a space that no client has open and that has no stamps. The mutex is held.
func (b *Book) drop(id key.SpaceID, sp *space) {
	if sp.open == 0 && len(sp.stamps) == 0 {
		base.Delete(&b.mu.spaces, id, &b.mu.peak)
	}
}

// Stored stamps chunks that are about to become visible. d is what their client
// allows, 0 for no bound of its own; the shorter of that and the bound of their space
// counts. Stamps that the keys have from chunks stored before are forgotten.
func (b *Book) Stored(id key.SpaceID, hs []key.Hash, d time.Duration) {
	if d == 0 && !b.bounds.Load() {
		return
	}
	now := b.Now()
	for part := range slices.Chunk(hs, round) {
		b.stored(id, part, uint32(d/time.Second), now)
	}
}

func (b *Book) stored(id key.SpaceID, hs []key.Hash, seconds, now uint32) {
	b.mu.Lock()
	defer b.mu.Unlock()
	sp := b.mu.spaces[id]
	if sp == nil && seconds == 0 {
		return
	}
	sp = b.space(id)
	s := Stamp{Born: now}
	if most := shorter(seconds, sp.most); most != 0 {
		s.Dies = sum(now, most)
	}
	for _, h := range hs {
		if s.Bounded() {
			b.note(id, sp, h, s, now)
		} else {
			b.forget(sp, h)
		}
	}
	b.drop(id, sp)
}

// note puts a stamp in the book. The mutex is held.
func (b *Book) note(id key.SpaceID, sp *space, h key.Hash, s Stamp, now uint32) {
	was, known := sp.stamps[h]
	if sp.stamps == nil {
		sp.stamps = make(map[key.Hash]held)
		b.bounds.Store(true)
	}
	sp.stamps[h] = held{s, now}
	if !known {
		b.mu.stamps++
	}
	if !known || was.Stamp != s {
		b.mu.slots.add(key.Key{Space: id, Hash: h}, s, now)
	}
}

// forget takes a stamp out of the book. The mutex is held.
func (b *Book) forget(sp *space, h key.Hash) {
	if _, known := sp.stamps[h]; !known {
		return
	}
	base.Delete(&sp.stamps, h, &sp.peak)
	b.mu.stamps--
}

// Found tells what stands beside a chunk in a tier that outlives the process, or that
// others use too: its stamp, of which the end may be 0, no bound. A known chunk keeps
// the earlier end, but for that of a copy that is over while the known one is not. It
// reports whether the copy may be used.
func (b *Book) Found(k key.Key, s Stamp) (alive bool) {
	if b == nil || !s.Bounded() && !b.bounds.Load() {
		return true
	}
	now := b.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	sp := b.mu.spaces[k.Space]
	if sp == nil && !s.Bounded() {
		return true
	}
	sp = b.space(k.Space)
	defer b.drop(k.Space, sp)
	if s = s.within(sp.most); s.Bounded() && s.ahead(now) { // over also when the clock has caught up
		s = Stamp{now, now}
	}
	was, known := sp.stamps[k.Hash]
	if known && s.over(now) && !was.over(now) { // an older copy than the one that is known
		return false
	}
	if known && (s.Dies == 0 || was.Dies <= s.Dies) {
		s = was.Stamp
	}
	if s.Bounded() {
		b.note(k.Space, sp, k.Hash, s, now)
	}
	return !s.over(now)
}

// Past reports whether a copy with stamp s, of some chunk of a space, is over. The book
// keeps nothing of it.
func (b *Book) Past(id key.SpaceID, s Stamp) bool {
	if b == nil || !s.Bounded() && !b.bounds.Load() {
		return false
	}
	b.mu.RLock()
	defer b.mu.RUnlock()
	if sp := b.mu.spaces[id]; sp != nil {
		s = s.within(sp.most)
	}
	return s.over(b.Now())
}

// Renews reports whether a copy with stamp s, in a tier that others use too, was stored
// since a known chunk was over, and is not over itself, or of a clock that is ahead.
func (b *Book) Renews(k key.Key, s Stamp) bool {
	if !b.active() {
		return false
	}
	now := b.Now()
	b.mu.RLock()
	defer b.mu.RUnlock()
	sp := b.mu.spaces[k.Space]
	if sp == nil {
		return false
	}
	was := sp.stamps[k.Hash]
	s = s.within(sp.most)
	return was.over(now) && s.Born >= was.Dies && (s.Dies == 0 || now < s.Dies)
}

// Stamp has chunks of a space that are there already become at most so old: those
// without a stamp count as stored now, the others since they were, and an earlier end
// stays.
func (b *Book) Stamp(id key.SpaceID, ks []key.Key, most time.Duration) {
	now := b.Now()
	for part := range slices.Chunk(ks, round) {
		b.stamp(id, part, uint32(most/time.Second), now)
	}
}

func (b *Book) stamp(id key.SpaceID, ks []key.Key, most, now uint32) {
	b.mu.Lock()
	defer b.mu.Unlock()
	sp := b.space(id)
	for _, k := range ks {
		s := sp.stamps[k.Hash].Stamp
		if !s.Bounded() {
			s.Born = now
		}
		s = s.within(most)
		b.note(id, sp, k.Hash, s, now)
	}
}

// active reports whether anything may have a bound.
func (b *Book) active() bool { return b != nil && b.bounds.Load() }

// Of is the stamp of a chunk; zero where it has no bound.
func (b *Book) Of(k key.Key) Stamp {
	if !b.active() {
		return Stamp{}
	}
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.stampOf(k)
}

// Over reports whether the time of a chunk has come.
func (b *Book) Over(k key.Key) bool {
	s := b.Of(k)
	return s.Bounded() && s.over(b.Now())
}

// Each calls fn with the number of each of hs, chunks of a space, that is over, in
// ascending order.
func (b *Book) Each(id key.SpaceID, hs []key.Hash, fn func(i int)) {
	if !b.active() {
		return
	}
	now := b.Now()
	var over [round]bool
	for at := 0; at < len(hs); at += round {
		part := hs[at:min(at+round, len(hs))]
		if !b.overIn(id, part, now, &over) {
			continue
		}
		for i := range part {
			if over[i] {
				fn(at + i)
			}
		}
	}
}

// overIn says which of hs are over, and whether any is.
func (b *Book) overIn(id key.SpaceID, hs []key.Hash, now uint32, over *[round]bool) (any bool) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	sp := b.mu.spaces[id]
	if sp == nil || len(sp.stamps) == 0 {
		return false
	}
	for i, h := range hs {
		s, known := sp.stamps[h]
		over[i] = known && s.over(now)
		any = any || over[i]
	}
	return any
}

// Stats is a snapshot of a Book.
type Stats struct {
	Chunks  int    // that have a bound
	Removed uint64 // chunks that were removed because their time had come
}

// Stats returns the present numbers.
func (b *Book) Stats() Stats {
	if b == nil {
		return Stats{}
	}
	b.mu.RLock()
	defer b.mu.RUnlock()
	return Stats{b.mu.stamps, b.removed.Load()}
}

// Slack is how far the clocks of machines that share a store may be apart.
const Slack = 5 * time.Minute

// Stamp is when a chunk was stored and when it is over, in seconds since 1970. The
// zero Stamp is that of a chunk without a bound.
type Stamp struct{ Born, Dies uint32 }

// Bounded reports whether the stamp is of a chunk with a bound.
func (s Stamp) Bounded() bool { return s.Dies != 0 }

// over reports whether the time of the stamp has come.
func (s Stamp) over(now uint32) bool {
	return s.Dies != 0 && (now >= s.Dies || s.ahead(now))
}

// Ahead reports whether a stamp is of a clock that is ahead of ours by more than Slack.
func (b *Book) Ahead(s Stamp) bool { return b != nil && s.Bounded() && s.ahead(b.Now()) }

// within is the stamp with an end at most so many seconds after the birth; 0 leaves it.
func (s Stamp) within(most uint32) Stamp {
	if end := sum(s.Born, most); most != 0 && (s.Dies == 0 || end < s.Dies) {
		s.Dies = end
	}
	return s
}

func (s Stamp) ahead(now uint32) bool {
	return uint64(s.Born) > uint64(now)+uint64(Slack/time.Second)
}

// Now is the time that counts, in seconds since 1970: see the package.
func (b *Book) Now() uint32 {
	if b == nil {
		return uint32(time.Now().Unix())
	}
	return uint32(max(b.wall(), b.started.Add(b.now().Sub(b.started)).Unix()))
}

// sum is a time so many seconds after another, the last representable one at most.
func sum(at, seconds uint32) uint32 {
	return uint32(min(uint64(at)+uint64(seconds), math.MaxUint32))
}

// shorter is the shorter of two ages, of which 0 is no bound.
func shorter(a, b uint32) uint32 {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}
