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
	// Grace is for how long an expiry is kept whether or not a tier has the chunk.
	Grace = 10 * time.Second

	// round bounds how many chunks are looked at under one hold of the mutex.
	round = 256
)

// Book is the ages of the chunks of a store. It is safe for concurrent use.
type Book struct {
	started time.Time        // with the reading of the monotonic clock
	now     func() time.Time // so too
	wall    func() int64     // seconds since 1970

	anyTTL  atomic.Bool // something has, or had, a TTL
	removed atomic.Uint64
	mu      struct {
		sync.RWMutex
		spaces   map[key.SpaceID]*space
		peak     int // of spaces
		slots    calendar
		expiries int
	}
}

// space is what a Book knows of one space.
type space struct {
	open     int    // clients
	ttl      uint32 // seconds that each chunk may have; 0: no TTL
	expiries map[key.Hash]held
	peak     int // of expiries
}

// held is an expiry in a Book.
type held struct {
	Expiry
	noted uint32 // when it was told last
}

// New makes an empty book. Nothing has a TTL.
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
// 0 for no TTL. It is known until each has called Close, and while it has expiries. Open
// reports whether the space had no TTL, or a longer one, before: chunks that are there
// already are for the caller to Shorten.
func (b *Book) Open(id key.SpaceID, ttl time.Duration) (shorter bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	sp := b.space(id)
	sp.open++
	return b.setTTL(sp, ttl)
}

// Close ends what Open began.
func (b *Book) Close(id key.SpaceID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	sp := b.mu.spaces[id]
	sp.open--
	b.drop(id, sp)
}

// SetTTL replaces the TTL of a space, and reports as Open does. An expiry that
// there is keeps its end.
func (b *Book) SetTTL(id key.SpaceID, ttl time.Duration) (shorter bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	sp := b.space(id)
	defer b.drop(id, sp)
	return b.setTTL(sp, ttl)
}

// TTL is that of a space that is open; 0 for none.
func (b *Book) TTL(id key.SpaceID) time.Duration {
	b.mu.RLock()
	defer b.mu.RUnlock()
	if sp := b.mu.spaces[id]; sp != nil {
		return time.Duration(sp.ttl) * time.Second
	}
	return 0
}

func (b *Book) setTTL(sp *space, ttl time.Duration) (shorter bool) {
	was := sp.ttl
	sp.ttl = uint32(ttl / time.Second)
	if sp.ttl == 0 {
		return false
	}
	b.anyTTL.Store(true)
	return was == 0 || sp.ttl < was
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

// drop forgets a space that no client has open and that has no expiries. The mutex is held.
func (b *Book) drop(id key.SpaceID, sp *space) {
	if sp.open == 0 && len(sp.expiries) == 0 {
		base.Delete(&b.mu.spaces, id, &b.mu.peak)
	}
}

// Stored notes when chunks expire that are about to become visible. d is what their client
// allows, 0 for no TTL of its own; the shorter of that and the TTL of their space
// counts. Expiries that the keys have from chunks stored before are forgotten.
func (b *Book) Stored(id key.SpaceID, hs []key.Hash, d time.Duration) {
	if d == 0 && !b.anyTTL.Load() {
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
	s := Expiry{Stored: now}
	if most := shorter(seconds, sp.ttl); most != 0 {
		s.Expires = sum(now, most)
	}
	for _, h := range hs {
		if s.HasTTL() {
			b.note(id, sp, h, s, now)
		} else {
			b.forget(sp, h)
		}
	}
	b.drop(id, sp)
}

// note puts an expiry in the book. The mutex is held.
func (b *Book) note(id key.SpaceID, sp *space, h key.Hash, s Expiry, now uint32) {
	was, known := sp.expiries[h]
	if sp.expiries == nil {
		sp.expiries = make(map[key.Hash]held)
		b.anyTTL.Store(true)
	}
	sp.expiries[h] = held{s, now}
	if !known {
		b.mu.expiries++
	}
	if !known || was.Expiry != s {
		b.mu.slots.add(key.Key{Space: id, Hash: h}, s, now)
	}
}

// forget takes an expiry out of the book. The mutex is held.
func (b *Book) forget(sp *space, h key.Hash) {
	if _, known := sp.expiries[h]; !known {
		return
	}
	base.Delete(&sp.expiries, h, &sp.peak)
	b.mu.expiries--
}

// Found tells what stands beside a chunk in a tier that outlives the process, or that
// others use too: its expiry, of which the end may be 0, no TTL. A known chunk keeps
// the earlier end, but for that of a copy that has expired while the known one has not. It
// reports whether the copy may be used.
func (b *Book) Found(k key.Key, s Expiry) (alive bool) {
	if b == nil || !s.HasTTL() && !b.anyTTL.Load() {
		return true
	}
	now := b.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	sp := b.mu.spaces[k.Space]
	if sp == nil && !s.HasTTL() {
		return true
	}
	sp = b.space(k.Space)
	defer b.drop(k.Space, sp)
	if s = s.within(sp.ttl); s.HasTTL() && s.ahead(now) { // expired also when the clock has caught up
		s = Expiry{now, now}
	}
	was, known := sp.expiries[k.Hash]
	if known && s.expired(now) && !was.expired(now) { // an older copy than the one that is known
		return false
	}
	if known && (s.Expires == 0 || was.Expires <= s.Expires) {
		s = was.Expiry
	}
	if s.HasTTL() {
		b.note(k.Space, sp, k.Hash, s, now)
	}
	return !s.expired(now)
}

// ExpiredCopy reports whether a copy with expiry s, of some chunk of a space, has expired. The book
// keeps nothing of it.
func (b *Book) ExpiredCopy(id key.SpaceID, s Expiry) bool {
	if b == nil || !s.HasTTL() && !b.anyTTL.Load() {
		return false
	}
	b.mu.RLock()
	defer b.mu.RUnlock()
	if sp := b.mu.spaces[id]; sp != nil {
		s = s.within(sp.ttl)
	}
	return s.expired(b.Now())
}

// Renews reports whether a copy with expiry s, in a tier that others use too, was stored
// since a known chunk had expired, and has not expired itself, or of a clock that is ahead.
func (b *Book) Renews(k key.Key, s Expiry) bool {
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
	was := sp.expiries[k.Hash]
	s = s.within(sp.ttl)
	return was.expired(now) && s.Stored >= was.Expires && (s.Expires == 0 || now < s.Expires)
}

// Shorten has chunks of a space that are there already become at most so old: those
// without an expiry count as stored now, the others since they were, and an earlier end
// stays.
func (b *Book) Shorten(id key.SpaceID, ks []key.Key, most time.Duration) {
	now := b.Now()
	for part := range slices.Chunk(ks, round) {
		b.shorten(id, part, uint32(most/time.Second), now)
	}
}

func (b *Book) shorten(id key.SpaceID, ks []key.Key, most, now uint32) {
	b.mu.Lock()
	defer b.mu.Unlock()
	sp := b.space(id)
	for _, k := range ks {
		s := sp.expiries[k.Hash].Expiry
		if !s.HasTTL() {
			s.Stored = now
		}
		s = s.within(most)
		b.note(id, sp, k.Hash, s, now)
	}
}

// active reports whether anything may have a TTL.
func (b *Book) active() bool { return b != nil && b.anyTTL.Load() }

// Of is the expiry of a chunk; zero where it has no TTL.
func (b *Book) Of(k key.Key) Expiry {
	if !b.active() {
		return Expiry{}
	}
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.expiryOf(k)
}

// Expired reports whether a chunk has expired.
func (b *Book) Expired(k key.Key) bool {
	s := b.Of(k)
	return s.HasTTL() && s.expired(b.Now())
}

// EachExpired calls fn with the number of each of hs, chunks of a space, that has expired, in
// ascending order.
func (b *Book) EachExpired(id key.SpaceID, hs []key.Hash, fn func(i int)) {
	if !b.active() {
		return
	}
	now := b.Now()
	var expired [round]bool
	for at := 0; at < len(hs); at += round {
		part := hs[at:min(at+round, len(hs))]
		if !b.expiredIn(id, part, now, &expired) {
			continue
		}
		for i := range part {
			if expired[i] {
				fn(at + i)
			}
		}
	}
}

// expiredIn says which of hs have expired, and whether any has.
func (b *Book) expiredIn(id key.SpaceID, hs []key.Hash, now uint32, expired *[round]bool) (any bool) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	sp := b.mu.spaces[id]
	if sp == nil || len(sp.expiries) == 0 {
		return false
	}
	for i, h := range hs {
		s, known := sp.expiries[h]
		expired[i] = known && s.expired(now)
		any = any || expired[i]
	}
	return any
}

// Stats is a snapshot of a Book.
type Stats struct {
	Chunks  int    // that have a TTL
	Removed uint64 // chunks that were removed because their time had come
}

// Stats returns the present numbers.
func (b *Book) Stats() Stats {
	if b == nil {
		return Stats{}
	}
	b.mu.RLock()
	defer b.mu.RUnlock()
	return Stats{b.mu.expiries, b.removed.Load()}
}

// Slack is how far the clocks of machines that share a store may be apart.
const Slack = 5 * time.Minute

// Expiry is when a chunk was stored and when it expires, in seconds since 1970. The
// zero Expiry is that of a chunk without a TTL.
type Expiry struct{ Stored, Expires uint32 }

// HasTTL reports whether the expiry is of a chunk with a TTL.
func (s Expiry) HasTTL() bool { return s.Expires != 0 }

// expired reports whether the time has come.
func (s Expiry) expired(now uint32) bool {
	return s.Expires != 0 && (now >= s.Expires || s.ahead(now))
}

// Ahead reports whether an expiry is of a clock that is ahead of ours by more than Slack.
func (b *Book) Ahead(s Expiry) bool { return b != nil && s.HasTTL() && s.ahead(b.Now()) }

// within is the expiry with an end at most so many seconds after the birth; 0 leaves it.
func (s Expiry) within(most uint32) Expiry {
	if end := sum(s.Stored, most); most != 0 && (s.Expires == 0 || end < s.Expires) {
		s.Expires = end
	}
	return s
}

func (s Expiry) ahead(now uint32) bool {
	return uint64(s.Stored) > uint64(now)+uint64(Slack/time.Second)
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

// shorter is the shorter of two ages, of which 0 is no TTL.
func shorter(a, b uint32) uint32 {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}
