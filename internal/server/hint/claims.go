package hint

import (
	"cmp"
	"container/heap"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kvstored/kvstored/internal/base"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

// ClaimLimits bound what may be claimed. Claims that are there stay where they are lowered.
type ClaimLimits struct {
	TotalBytes int64         // payload of all chunks that are claimed, each once
	UserBytes  int64         // of those of one user
	Duration   time.Duration // of one claim
}

const (
	// MaxPins is how many hard claims a connection may have: a name in a space is one.
	MaxPins = 1 << 10
	// maxMemory bounds the table: at some 340 bytes for each chunk of a claim these are
	// 190,000 chunks, of which each user may have half of what the others leave.
	maxMemory = 64 << 20
	// round is how many chunks change in one hold of the lock, in some 0.3 ms.
	round = 1024
	// Memory of a claimant, of a chunk, and of a grant on it, with their shares of
	// maps and heaps.
	holderBytes, chunkBytes, grantBytes = 400, 160, 184
)

// errOver says that no more may be claimed, of a user or in total.
var errOver = errors.New("no more may be retained")

// Claimant is who claims: a name of one user in one space; of a hard claim, a pin, also
// the connection that it ends with.
type Claimant struct {
	UID        uint32
	Space      key.SpaceID
	Name       string // a scope, a session or a lookup id; "" is a claimant too
	Connection uint64 // 0: the claim is soft
}

// Store is the tiers that have the chunks. It must not call the table.
type Store interface {
	// Claim says which chunks of a space are claimed.
	Claim(space key.SpaceID, hs []key.Hash, claimed []bool)
	// Release gives back what a hard claim holds in DRAM.
	Release(o ledger.Owner, c ledger.Class, refs []tier.Ref)
}

// Claims is all claims. It is safe for concurrent use.
type Claims struct {
	store Store
	now   func() time.Time
	known atomic.Int64  // chunks; 0 for most daemons, which then take no lock
	wake  chan struct{} // capacity 1: the first deadline may be another
	mu    struct {
		sync.Mutex
		limits  ClaimLimits
		chunks  map[key.Key]*chunk
		peak    int // of chunks
		holders map[Claimant]*holder
		users   map[uint32]*user
		pins    map[uint64]map[*holder]struct{} // those of hard claims, by connection
		due     deadlines                       // of all grants
		bytes   int64
		memory  int64
		hashes  []key.Hash // of the round being told
		claimed []bool
		held    []held // that hard claims have ended with
	}
	count counts
}

type chunk struct {
	bytes  int64 // of its payload; 0 = not known yet
	grants []*grant
}

// grant is what one claimant claims a chunk with.
type grant struct {
	of    *holder
	hash  key.Hash
	at    int // in deadlines
	until time.Time
	ref   tier.Ref // of a hard claim
}

// held is what an owner holds in DRAM by hard claims.
type held struct {
	owner ledger.Owner
	refs  []tier.Ref
}

type holder struct {
	Claimant
	owner  ledger.Owner // of a hard claim: who holds
	user   *user
	chunks map[key.Hash]struct{}
	peak   int       // of chunks
	until  time.Time // of a hard claim: its end, where that of a grant is earlier
}

type user struct {
	holders int
	bytes   int64
	memory  int64 // with each grant's chunk, also one that others retain too
}

// NewClaims returns an empty table.
func NewClaims(s Store, l ClaimLimits) *Claims {
	t := &Claims{store: s, now: time.Now, wake: make(chan struct{}, 1)}
	t.mu.chunks, t.mu.holders, t.mu.users = make(map[key.Key]*chunk), make(map[Claimant]*holder), make(map[uint32]*user)
	t.mu.pins = make(map[uint64]map[*holder]struct{})
	t.mu.limits = l
	return t
}

// Set replaces the limits. Claims that are there stay.
func (t *Claims) Set(l ClaimLimits) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.limits = l
}

// Retain has a claimant claim chunks of its space for so long; an earlier claim of
// its own is replaced. sizes are their payload bytes, 0 where they are not known yet; see
// Stored. It returns how many of the first are claimed now; the error, errOver, says why
// not all.
func (t *Claims) Retain(c Claimant, hs []key.Hash, sizes []int64, d time.Duration) (int, error) {
	for n := 0; n < len(hs); {
		end := min(n+round, len(hs))
		done, err := t.retainSome(c, hs[n:end], sizes[n:end], held{}, d)
		if n += done; err != nil {
			return n, err
		}
	}
	return len(hs), nil
}

// Pin is Retain of chunks that o holds as refs, which the claim takes over. All that was
// pinned under the name lasts as long, at least.
func (t *Claims) Pin(c Claimant, o ledger.Owner, hs []key.Hash, refs []tier.Ref, d time.Duration) (n int, err error) {
	sizes := make([]int64, min(len(hs), round))
	for ; n < len(hs) && err == nil; refs = refs[min(round, len(refs)):] {
		some := refs[:min(round, len(refs))]
		for i, r := range some {
			sizes[i] = int64(r.Block.Len())
		}
		var done int
		done, err = t.retainSome(c, hs[n:n+len(some)], sizes, held{o, some}, d)
		n += done
	}
	t.store.Release(o, ledger.Pin, refs)
	return n, err
}

func (t *Claims) retainSome(c Claimant, hs []key.Hash, sizes []int64, by held, d time.Duration) (n int, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	until, first := t.now().Add(min(d, t.mu.limits.Duration)), t.mu.due.first()
	for ; n < len(hs); n++ {
		var g *grant
		if g, err = t.grant(c, hs[n], sizes[n], until); err != nil {
			break
		}
		if by.refs != nil && g.ref.ID != by.refs[n].ID { // the chunk may have been stored anew
			g.of.owner, g.ref, by.refs[n] = by.owner, by.refs[n], g.ref
		}
	}
	for _, ref := range by.refs {
		if ref.Valid() {
			t.letGo(by.owner, ref)
		}
	}
	t.flush(c.Space)
	if !t.mu.due.first().Equal(first) {
		base.Poke(t.wake)
	}
	return n, err
}

// letGo notes a reference to be released.
func (t *Claims) letGo(o ledger.Owner, ref tier.Ref) {
	last := len(t.mu.held) - 1
	if last < 0 || t.mu.held[last].owner != o {
		t.mu.held = append(t.mu.held, held{owner: o})
		last++
	}
	t.mu.held[last].refs = append(t.mu.held[last].refs, ref)
}

// grant claims one chunk, and notes that.
func (t *Claims) grant(c Claimant, hash key.Hash, bytes int64, until time.Time) (*grant, error) {
	k := key.Key{Space: c.Space, Hash: hash}
	h, ch := t.mu.holders[c], t.mu.chunks[k]
	g := ch.of(h)
	if h == nil && len(t.mu.pins[c.Connection]) == MaxPins {
		return nil, fmt.Errorf("%d names of this connection: %w", MaxPins, errOver)
	}
	if ch != nil && ch.bytes == 0 && bytes > 0 {
		t.measured(k, ch, bytes)
		h, ch = t.mu.holders[c], t.mu.chunks[k]
		g = ch.of(h)
	}
	if g == nil {
		if err := t.fits(c.UID, ch, bytes); err != nil {
			return nil, err
		}
		g = t.add(c, k, bytes)
		t.count.given.Add(1)
		ch = t.mu.chunks[k]
	}
	g.until = until
	if c.Connection != 0 && until.After(g.of.until) {
		g.of.until = until
	}
	heap.Fix(&t.mu.due, g.at)
	t.note(c.Space, hash, ch)
	return g, nil
}

// of is the grant of a claimant on a chunk, or nil.
func (c *chunk) of(h *holder) *grant {
	if c == nil || h == nil {
		return nil
	}
	for _, g := range c.grants {
		if g.of == h {
			return g
		}
	}
	return nil
}

// has reports whether a user claims a chunk.
func (c *chunk) has(u *user) bool {
	for i := range c.grants {
		if c.grants[i].of.user == u {
			return true
		}
	}
	return false
}

// fits is an error if a user must not claim one chunk more.
func (t *Claims) fits(uid uint32, ch *chunk, bytes int64) error {
	u, l := t.mu.users[uid], &t.mu.limits
	own, memory, total := int64(0), int64(0), t.mu.bytes
	if u != nil {
		own, memory = u.bytes, u.memory
	}
	if ch != nil {
		bytes = ch.bytes
	} else {
		total += bytes
	}
	if ch == nil || u == nil || !ch.has(u) {
		own += bytes
	}
	const most = holderBytes + chunkBytes + grantBytes
	switch {
	case own > l.UserBytes:
		return fmt.Errorf("%d bytes of this user, of %d: %w", own, l.UserBytes, errOver)
	case total > l.TotalBytes:
		return fmt.Errorf("%d bytes of all users, of %d: %w", total, l.TotalBytes, errOver)
	case memory+most > (maxMemory-max(t.mu.memory-memory, 0))/2 || t.mu.memory+most > maxMemory:
		return fmt.Errorf("the table of claims is full: %w", errOver)
	}
	return nil
}

// add makes a grant without an end.
func (t *Claims) add(c Claimant, k key.Key, bytes int64) *grant {
	h := t.holder(c)
	ch := t.mu.chunks[k]
	if ch == nil {
		ch = &chunk{bytes: bytes}
		t.mu.chunks[k] = ch
		t.mu.bytes += bytes
		t.mu.memory += chunkBytes
		t.known.Add(1)
	}
	if !ch.has(h.user) {
		h.user.bytes += ch.bytes
	}
	h.chunks[k.Hash] = struct{}{}
	g := &grant{of: h, hash: k.Hash}
	ch.grants = append(ch.grants, g)
	heap.Push(&t.mu.due, g)
	t.spend(h, grantBytes)
	h.user.memory += chunkBytes
	return g
}

func (t *Claims) holder(c Claimant) *holder {
	h := t.mu.holders[c]
	if h == nil {
		u := t.mu.users[c.UID]
		if u == nil {
			u = new(user)
			t.mu.users[c.UID] = u
		}
		u.holders++
		h = &holder{Claimant: c, user: u, chunks: make(map[key.Hash]struct{})}
		t.mu.holders[c] = h
		if c.Connection != 0 {
			if t.mu.pins[c.Connection] == nil {
				t.mu.pins[c.Connection] = make(map[*holder]struct{})
			}
			t.mu.pins[c.Connection][h] = struct{}{}
		}
		t.spend(h, holderBytes+int64(len(c.Name)))
	}
	return h
}

func (t *Claims) spend(h *holder, n int64) {
	h.user.memory += n
	t.mu.memory += n
}

// note puts a chunk among those of which the store is to be told.
func (t *Claims) note(space key.SpaceID, hash key.Hash, ch *chunk) {
	t.mu.hashes, t.mu.claimed = append(t.mu.hashes, hash), append(t.mu.claimed, len(ch.grants) > 0)
	if len(t.mu.hashes) == cap(t.mu.hashes) && len(t.mu.hashes) >= 1024 {
		t.flush(space)
	}
}

// flush carries out all notes, of one space.
func (t *Claims) flush(space key.SpaceID) {
	if len(t.mu.hashes) > 0 {
		t.store.Claim(space, t.mu.hashes, t.mu.claimed)
		t.mu.hashes, t.mu.claimed = t.mu.hashes[:0], t.mu.claimed[:0]
	}
	for _, h := range t.mu.held {
		t.store.Release(h.owner, ledger.Pin, h.refs)
	}
	t.mu.held = nil
}

// Stored says that a tier has a chunk of so many bytes now, and tells the ledger of that
// tier if it is claimed.
func (t *Claims) Stored(k key.Key, bytes int64, in *ledger.Ledger) {
	if t.known.Load() == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	ch := t.mu.chunks[k]
	if ch == nil {
		return
	}
	if ch.bytes == 0 && !t.measured(k, ch, bytes) {
		return
	}
	if in != nil {
		ledger.Claim(in, k.Space, []key.Hash{k.Hash}, []bool{true})
	}
}

// measured notes how large a chunk is, and reports whether it is claimed all the same:
// a user who would claim too much with it loses it, unless it is pinned, as its client was told.
func (t *Claims) measured(k key.Key, ch *chunk, bytes int64) bool {
	ch.bytes = bytes
	t.mu.bytes += bytes
	seen := make(map[*user]bool, 1)
	for i := range ch.grants {
		if u := ch.grants[i].of.user; !seen[u] {
			seen[u] = true
			u.bytes += bytes
		}
	}
	for i := len(ch.grants) - 1; i >= 0; i-- {
		if h := ch.grants[i].of; !ch.grants[i].ref.Valid() && (h.user.bytes > t.mu.limits.UserBytes || t.mu.bytes > t.mu.limits.TotalBytes) {
			t.count.over.Add(1)
			t.drop(h, k.Hash)
		}
	}
	t.flush(k.Space)
	return len(ch.grants) > 0
}

// ReleaseAll ends what a claimant claims, and returns how many chunks those were.
func (t *Claims) ReleaseAll(c Claimant) int { return t.Release(c, t.claimed(c)) }

// Release is ReleaseAll of some chunks.
func (t *Claims) Release(c Claimant, hs []key.Hash) (n int) {
	for part := range slices.Chunk(hs, round) {
		n += t.release(c, part)
	}
	return n
}

// End ends the hard claims of a connection, of all for 0, of which is says so, and returns of
// how many chunks they were. is must not call the table.
func (t *Claims) End(connection uint64, is func(*Claimant) bool) (n int) {
	for _, c := range t.pinned(connection, is) {
		n += t.ReleaseAll(c)
	}
	return n
}

func (t *Claims) pinned(connection uint64, is func(*Claimant) bool) (found []Claimant) {
	t.mu.Lock()
	defer t.mu.Unlock()
	collect := func(some map[*holder]struct{}) {
		for h := range some {
			if is(&h.Claimant) {
				found = append(found, h.Claimant)
			}
		}
	}
	if connection != 0 {
		collect(t.mu.pins[connection])
		return found
	}
	for _, some := range t.mu.pins {
		collect(some)
	}
	return found
}

// claimed is the chunks that a claimant claims.
func (t *Claims) claimed(c Claimant) []key.Hash {
	t.mu.Lock()
	defer t.mu.Unlock()
	if h := t.mu.holders[c]; h != nil {
		return slices.Collect(maps.Keys(h.chunks))
	}
	return nil
}

func (t *Claims) release(c Claimant, hs []key.Hash) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	h := t.mu.holders[c]
	if h == nil {
		return 0
	}
	before := len(h.chunks)
	for _, hash := range hs {
		t.drop(h, hash)
	}
	t.flush(c.Space)
	return before - len(h.chunks)
}

// drop ends the grant of a claimant on a chunk, and notes that.
func (t *Claims) drop(h *holder, hash key.Hash) {
	k := key.Key{Space: h.Space, Hash: hash}
	ch := t.mu.chunks[k]
	g := ch.of(h)
	if g == nil {
		return
	}
	i := slices.Index(ch.grants, g)
	if ch.grants = slices.Delete(ch.grants, i, i+1); len(ch.grants) < cap(ch.grants)/4 {
		ch.grants = slices.Clone(ch.grants) // few are left of many
	}
	heap.Remove(&t.mu.due, g.at)
	base.Delete(&h.chunks, hash, &h.peak)
	if g.ref.Valid() {
		t.letGo(h.owner, g.ref)
	}
	if !ch.has(h.user) {
		h.user.bytes -= ch.bytes
	}
	t.spend(h, -grantBytes)
	h.user.memory -= chunkBytes
	t.note(h.Space, hash, ch)
	if len(ch.grants) == 0 {
		t.mu.bytes -= ch.bytes
		t.mu.memory -= chunkBytes
		base.Delete(&t.mu.chunks, k, &t.mu.peak)
		t.known.Add(-1)
	}
	if len(h.chunks) == 0 {
		t.forget(h)
	}
}

// forget ends a claimant that claims nothing.
func (t *Claims) forget(h *holder) {
	t.spend(h, -holderBytes-int64(len(h.Name)))
	delete(t.mu.holders, h.Claimant)
	if delete(t.mu.pins[h.Connection], h); len(t.mu.pins[h.Connection]) == 0 {
		delete(t.mu.pins, h.Connection)
	}
	if h.user.holders--; h.user.holders == 0 {
		delete(t.mu.users, h.UID)
	}
}

// leastRoom is for how many grants the heap keeps its room when most of them are over.
const leastRoom = 1 << 10

// deadlines is a heap of grants, the first to end on top. Each knows its place.
type deadlines []*grant

func (d deadlines) Len() int           { return len(d) }
func (d deadlines) Less(i, j int) bool { return d[i].until.Before(d[j].until) }
func (d deadlines) Swap(i, j int) {
	d[i], d[j] = d[j], d[i]
	d[i].at, d[j].at = i, j
}

func (d *deadlines) Push(g any) {
	g.(*grant).at = len(*d)
	*d = append(*d, g.(*grant))
}

func (d *deadlines) Pop() any {
	last := len(*d) - 1
	g := (*d)[last]
	(*d)[last] = nil
	*d = (*d)[:last]
	if room := cap(*d); room > leastRoom && last < room/4 {
		*d = append(make(deadlines, 0, room/2), *d...)
	}
	return g
}

// first is when the first one ends; zero for none.
func (d deadlines) first() time.Time {
	if len(d) == 0 {
		return time.Time{}
	}
	return d[0].until
}

// Expire ends the claims that are over, and returns when the next one is; zero for
// none.
func (t *Claims) Expire() time.Time {
	for {
		if next, more := t.expireSome(); !more {
			return next
		}
	}
}

// expireSome ends claims in one space, and reports whether there may be others.
func (t *Claims) expireSome() (next time.Time, more bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now()
	if next = t.mu.due.first(); next.IsZero() || next.After(now) {
		return next, false
	}
	space := t.mu.due[0].of.Space
	for range round {
		if len(t.mu.due) == 0 || t.mu.due[0].until.After(now) || t.mu.due[0].of.Space != space {
			break
		}
		g := t.mu.due[0]
		if g.of.until.After(now) { // its name was pinned again
			g.until = g.of.until
			heap.Fix(&t.mu.due, 0)
			continue
		}
		t.drop(g.of, g.hash)
	}
	t.flush(space)
	return time.Time{}, true
}

// Run ends claims in time until ctx ends.
func (t *Claims) Run(ctx context.Context) error {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		wait := time.Hour
		if next := t.Expire(); !next.IsZero() {
			wait = max(next.Sub(t.now()), 0)
		}
		timer.Reset(wait)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
		case <-t.wake:
		}
	}
}

// counts are of grants: a chunk that one claimant claims is one.
type counts struct{ given, over atomic.Uint64 }

// ClaimStats counts the claims.
type ClaimStats struct {
	Chunks      int64  `json:"chunks"`
	Bytes       int64  `json:"bytes"` // payload, as far as it is known
	Claimants   int64  `json:"claimants"`
	MemoryBytes int64  `json:"memory_bytes"`
	Given       uint64 `json:"given"`       // chunks that a claimant has retained
	OverBudget  uint64 `json:"over_budget"` // let go of because they were larger than expected
}

// Stats returns the present numbers.
func (t *Claims) Stats() ClaimStats {
	t.mu.Lock()
	defer t.mu.Unlock()
	return ClaimStats{
		Chunks: int64(len(t.mu.chunks)), Bytes: t.mu.bytes, Claimants: int64(len(t.mu.holders)), MemoryBytes: t.mu.memory,
		Given: t.count.given.Load(), OverBudget: t.count.over.Load(),
	}
}

// Held is what one claimant claims: a name of one user in one space.
type Held struct {
	Name           string  `json:"name"` // a scope, a session or a lookup id
	UID            uint32  `json:"uid"`
	Space          string  `json:"space"`      // its id
	Connection     uint64  `json:"connection"` // of a pin; 0: it is none
	Chunks         int     `json:"chunks"`
	Bytes          int64   `json:"bytes"` // payload, as far as it is known
	ExpiresSeconds float64 `json:"expires_seconds"`
}

// List is what claimants claim, hard or soft, the first most of them: soft claims by bytes,
// most first, hard ones by name. more is how many are left out. It takes the lock for a
// round of chunks at a time, so that what changes meanwhile may be in it or not.
func (t *Claims) List(hard bool, most int) (list []Held, more int) {
	now := t.now()
	for _, h := range t.holders() {
		if hard != (h.Connection != 0) {
			continue
		}
		x := Held{Name: h.Name, UID: h.UID, Space: h.Space.String(), Connection: h.Connection}
		for some := range slices.Chunk(t.claimed(h.Claimant), round) {
			t.sum(&x, h, some, now)
		}
		if x.Chunks > 0 {
			list = append(list, x)
		}
	}
	slices.SortFunc(list, func(a, b Held) int {
		named := cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Connection, b.Connection), cmp.Compare(a.UID, b.UID), cmp.Compare(a.Space, b.Space))
		if hard {
			return named
		}
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), named)
	})
	more = max(0, len(list)-most)
	return list[:len(list)-more], more
}

func (t *Claims) holders() []*holder {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Collect(maps.Values(t.mu.holders))
}

// sum adds the chunks that a claimant still claims.
func (t *Claims) sum(x *Held, h *holder, some []key.Hash, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, hash := range some {
		ch := t.mu.chunks[key.Key{Space: h.Space, Hash: hash}]
		g := ch.of(h)
		if g == nil {
			continue // since let go of
		}
		x.Chunks++
		x.Bytes += ch.bytes
		x.ExpiresSeconds = max(x.ExpiresSeconds, g.until.Sub(now).Seconds(), h.until.Sub(now).Seconds())
	}
}
