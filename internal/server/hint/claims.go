package hint

import (
	"container/heap"
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
)

// ClaimLimits bound what may be retained. They are soft: claims that are there stay
// where they are lowered.
type ClaimLimits struct {
	TotalBytes int64         // payload of all chunks that are retained, each once
	UserBytes  int64         // of those of one user
	Duration   time.Duration // of one claim
}

const (
	// maxPriority is the highest priority of a claim.
	maxPriority = 100
	// maxMemory bounds the table: at some 300 bytes for each chunk of a claim these are
	// 220,000 chunks, of which each user may have half of what the others leave.
	maxMemory = 64 << 20
	// round is how many chunks change in one hold of the lock, in some 0.3 ms.
	round = 1024
	// Memory of a claimant, of a chunk, and of a grant on it, with their shares of
	// maps and heaps.
	holderBytes, chunkBytes, grantBytes = 384, 160, 144
)

// errOver says that no more may be retained, of a user or in total.
var errOver = errors.New("no more may be retained")

// Claimant is who retains: a name of one user in one space.
type Claimant struct {
	UID   uint32
	Space key.SpaceID
	Name  string // a scope or a session; "" is a claimant too
}

// Tell gives chunks of a space their ranks in all tiers that have them. It must not
// call the table.
type Tell func(space key.SpaceID, hs []key.Hash, ranks []ledger.Rank)

// Claims is all claims. It is safe for concurrent use.
type Claims struct {
	tell  Tell
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
		due     deadlines // of all grants
		bytes   int64
		memory  int64
		hashes  []key.Hash // of the round being told
		ranks   []ledger.Rank
	}
	count counts
}

type chunk struct {
	bytes  int64 // of its payload; 0 = not known yet
	grants []*grant
}

// grant is what one claimant retains a chunk with.
type grant struct {
	of       *holder
	hash     key.Hash
	at       int // in deadlines
	priority uint8
	until    time.Time
}

type holder struct {
	Claimant
	user   *user
	chunks map[key.Hash]struct{}
}

type user struct {
	holders int
	bytes   int64
	memory  int64 // with each grant's chunk, also one that others retain too
}

// NewClaims returns an empty table.
func NewClaims(tell Tell, l ClaimLimits) *Claims {
	t := &Claims{tell: tell, now: time.Now, wake: make(chan struct{}, 1)}
	t.mu.chunks, t.mu.holders, t.mu.users = make(map[key.Key]*chunk), make(map[Claimant]*holder), make(map[uint32]*user)
	t.mu.limits = l
	return t
}

// Set replaces the limits. Claims that are there stay.
func (t *Claims) Set(l ClaimLimits) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.limits = l
}

// Retain has a claimant retain chunks of its space for so long; an earlier claim of
// its own is replaced. sizes are their payload bytes, 0 where they are not known yet; see
// Stored. Priority 0 releases them. It returns how many of the first are retained now;
// the error, errOver, says why not all.
func (t *Claims) Retain(c Claimant, hs []key.Hash, sizes []int64, priority uint8, d time.Duration) (int, error) {
	if priority == 0 && len(hs) > 0 { // nil would be all
		t.Release(c, hs)
	}
	if priority == 0 {
		return 0, nil
	}
	for n := 0; n < len(hs); {
		end := min(n+round, len(hs))
		done, err := t.retainSome(c, hs[n:end], sizes[n:end], priority, d)
		if n += done; err != nil {
			return n, err
		}
	}
	return len(hs), nil
}

func (t *Claims) retainSome(c Claimant, hs []key.Hash, sizes []int64, priority uint8, d time.Duration) (n int, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	until, first := t.now().Add(min(d, t.mu.limits.Duration)), t.mu.due.first()
	for ; n < len(hs); n++ {
		if err = t.grant(c, hs[n], sizes[n], priority, until); err != nil {
			break
		}
	}
	t.flush(c.Space)
	if !t.mu.due.first().Equal(first) {
		base.Poke(t.wake)
	}
	return n, err
}

// grant retains one chunk, and notes its rank.
func (t *Claims) grant(c Claimant, hash key.Hash, bytes int64, priority uint8, until time.Time) error {
	k := key.Key{Space: c.Space, Hash: hash}
	h, ch := t.mu.holders[c], t.mu.chunks[k]
	g := ch.of(h)
	if g == nil {
		if err := t.fits(c.UID, ch, bytes); err != nil {
			return err
		}
		g = t.add(c, k, bytes)
		t.count.given.Add(1)
		ch = t.mu.chunks[k]
	}
	g.priority, g.until = priority, until
	heap.Fix(&t.mu.due, g.at)
	t.note(c.Space, hash, ch)
	return nil
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

// has reports whether a user retains a chunk.
func (c *chunk) has(u *user) bool {
	for i := range c.grants {
		if c.grants[i].of.user == u {
			return true
		}
	}
	return false
}

// fits is an error if a user must not retain one chunk more.
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

// add makes a grant without a priority and an end.
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
		t.spend(h, holderBytes+int64(len(c.Name)))
	}
	return h
}

func (t *Claims) spend(h *holder, n int64) {
	h.user.memory += n
	t.mu.memory += n
}

// rank is that of the highest priority which a chunk is retained with.
func (c *chunk) rank() (r ledger.Rank) {
	for i := range c.grants {
		r = max(r, rankOf(c.grants[i].priority))
	}
	return r
}

// rankOf is how a priority ranks in the tiers: 1 to 25 are the lowest rank.
func rankOf(priority uint8) ledger.Rank {
	const each = maxPriority / int(ledger.MaxRank)
	return ledger.Rank((int(min(priority, maxPriority)) + each - 1) / each)
}

// note puts a chunk among those whose ranks are to be told.
func (t *Claims) note(space key.SpaceID, hash key.Hash, ch *chunk) {
	t.mu.hashes, t.mu.ranks = append(t.mu.hashes, hash), append(t.mu.ranks, ch.rank())
	if len(t.mu.hashes) == cap(t.mu.hashes) && len(t.mu.hashes) >= 1024 {
		t.flush(space)
	}
}

// flush tells the ranks that were noted, of one space.
func (t *Claims) flush(space key.SpaceID) {
	if len(t.mu.hashes) > 0 {
		t.tell(space, t.mu.hashes, t.mu.ranks)
		t.mu.hashes, t.mu.ranks = t.mu.hashes[:0], t.mu.ranks[:0]
	}
}

// Stored says that a tier has a chunk of so many bytes now, and gives it its rank in the
// ledger of that tier.
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
		ledger.Retain(in, k.Space, []key.Hash{k.Hash}, []ledger.Rank{ch.rank()})
	}
}

// measured notes how large a chunk is, and reports whether it is retained all the same:
// a user who would retain too much with it loses it.
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
		if h := ch.grants[i].of; h.user.bytes > t.mu.limits.UserBytes || t.mu.bytes > t.mu.limits.TotalBytes {
			t.count.over.Add(1)
			t.drop(h, k.Hash)
		}
	}
	t.flush(k.Space)
	return len(ch.grants) > 0
}

// Release ends what a claimant claims of some chunks, of all for nil, and returns how
// many those were.
func (t *Claims) Release(c Claimant, hs []key.Hash) (n int) {
	if hs == nil {
		hs = t.claimed(c)
	}
	for part := range slices.Chunk(hs, round) {
		n += t.release(c, part)
	}
	return n
}

// claimed is the chunks that a claimant retains.
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

// drop ends the grant of a claimant on a chunk, and notes the rank that is left.
func (t *Claims) drop(h *holder, hash key.Hash) {
	k := key.Key{Space: h.Space, Hash: hash}
	ch := t.mu.chunks[k]
	g := ch.of(h)
	if g == nil {
		return
	}
	i := slices.Index(ch.grants, g)
	ch.grants = slices.Delete(ch.grants, i, i+1)
	heap.Remove(&t.mu.due, g.at)
	delete(h.chunks, hash)
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

// forget ends a claimant that retains nothing.
func (t *Claims) forget(h *holder) {
	t.spend(h, -holderBytes-int64(len(h.Name)))
	delete(t.mu.holders, h.Claimant)
	if h.user.holders--; h.user.holders == 0 {
		delete(t.mu.users, h.UID)
	}
}
