package explain

import (
	"encoding/binary"
	"math/bits"
	"slices"
	"sort"
	"sync/atomic"
	"time"

	"github.com/kvstored/kvstored/key"
)

// Groups is how many groups the sessions are divided into.
const Groups = 32

// Sample is a part of what clients have asked for. It names no chunk and no model.
type Sample struct {
	At       time.Time `json:"at"`      // when it was taken
	Since    time.Time `json:"since"`   // its first prompt came; zero where there is none
	Shift    uint8     `json:"shift"`   // one of 1<<shift sessions is in it
	Heads    int       `json:"heads"`   // chunks that belong to no session: all of them are in it
	Dropped  uint64    `json:"dropped"` // prompts that came too fast, since the start
	Tiers    Tiers     `json:"tiers"`
	Measured Measured  `json:"measured"`
	// Parents are the chunks, a tree: number + 1 of the chunk before each, 0 where it is a
	// first one. A chunk comes after its parent.
	Parents []uint32 `json:"parents"`
	Prompts []Prompt `json:"prompts"` // in the order in which they came
}

// Prompt is one that was asked for.
type Prompt struct {
	Last   uint32 `json:"last"`   // number + 1 of its last chunk, or of the last that was stored behind it
	Chunk  uint32 `json:"chunk"`  // tokens of a whole one
	Tokens uint32 `json:"tokens"` // of those that were asked for, and before
	Skip   uint32 `json:"skip"`   // of these, what the engine had
	Millis int64  `json:"ms"`
	Group  int    `json:"group"`  // of its session
	Warmup bool   `json:"warmup"` // fills caches, and does not count
}

// Measured is what the tiers really hit, of all sessions.
type Measured struct {
	Since       time.Time `json:"since"`
	AskedTokens uint64    `json:"asked_tokens"`
	HitTokens   uint64    `json:"hit_tokens"` // in DRAM or on disk
}

// Tiers are the tiers as they are.
type Tiers struct {
	DRAM      Tier    `json:"cpu"`
	Disk      Tier    `json:"disk"` // of no bytes where there is none
	Write     string  `json:"write_mode"`
	UnsafeAge float64 `json:"unsafe_age_seconds"`
}

// alike reports whether two have the same sizes and rules. How many chunks fit changes
// with their length.
func (t Tiers) alike(other *Tiers) bool {
	t.DRAM.Chunks, t.Disk.Chunks = other.DRAM.Chunks, other.Disk.Chunks
	return t == *other
}

// Tier is one of them.
type Tier struct {
	Bytes  int64  `json:"bytes"`
	Chunks int64  `json:"chunks"` // as many of those that it has now, as would fit
	Policy string `json:"policy"`

	ByCompute bool `json:"rank_by_compute"` // its policies that know costs go by these
}

// Bounds of the sample.
const (
	maxChunks      = 1 << 17 // of the tree
	chunksInPrompt = 2
	playsOfChunk   = 32 // chunks of all prompts, each as often as it is in one
)

const (
	// A chunk is a head where it is in one of so many branches of its space, or more, and in
	// this many, or in a quarter where the space has few.
	headShare, headLeast, headQuarter = 64, 16, 4
	// While fewer spaces are known, all prompts of one that is not are taken: a session is
	// told from a model by the heads of its space, which the next shrinking finds.
	mostKnown = 256
	// A window is long enough where its chunks are so many times those of the largest
	// cache, and much too long where they are so many times as many again.
	turnovers, tooLong = 4, 4
	// A cache is not scaled down to fewer prompts: it would say nothing of a larger one.
	promptsInCache = 8
	// The caches that may be played have half of the present size to four times as much.
	smallestCache, largestCache = 0.5, 4
)

// prompt is one that was asked for.
type prompt struct {
	last         uint32 // number + 1 of its last chunk, or of the last that was stored behind it
	length       uint32 // chunks up to that one
	tokens, skip uint32
	chunk        uint32 // tokens of a whole one
	shift        uint8  // that the sample had when it came, or has had since
	space        uint64 // of its chunks
	millis       int64
}

// book is the sample: the prompts of the sessions that are in it. It is not safe for
// concurrent use.
type book struct {
	numbers map[uint64]uint32 // of the chunks of the tree, by hash
	hashes  []uint64          // by number
	parents []uint32          // number + 1; 0 = none
	ends    []uint32          // number + 1 of the last prompt that ends at a chunk; 0 = none
	list    []prompt
	plays   int64
	shift   uint8
	cut     bool  // older prompts have gone
	gate    *gate // as requests should have it
	room    int   // for chunks of the tree
}

func newBook(room int) *book {
	return &book{numbers: make(map[uint64]uint32), gate: &gate{}, room: room}
}

// add takes in a prompt by the hashes of its chunks.
func (b *book) add(hashes []uint64, it *item, millis int64) {
	known := b.known(hashes)
	if it.stored {
		b.extend(hashes, known)
		return
	}
	last := b.grow(hashes[known:], b.at(hashes, known))
	b.list = append(b.list, prompt{last: last, length: uint32(len(hashes)), tokens: it.tokens, skip: it.skip, chunk: it.chunk, shift: b.shift, space: it.space, millis: millis})
	b.ends[last-1] = uint32(len(b.list))
	b.plays += int64(len(hashes))
}

// known is how many leading chunks are in the tree. With a chunk all before it are.
func (b *book) known(hashes []uint64) int {
	return sort.Search(len(hashes), func(i int) bool {
		_, ok := b.numbers[hashes[i]]
		return !ok
	})
}

// at is number + 1 of the last of some leading chunks that are in the tree.
func (b *book) at(hashes []uint64, known int) uint32 {
	if known == 0 {
		return 0
	}
	return b.numbers[hashes[known-1]] + 1
}

// grow adds chunks behind one, and returns number + 1 of the last.
func (b *book) grow(hashes []uint64, last uint32) uint32 {
	for _, h := range hashes {
		b.numbers[h] = uint32(len(b.hashes))
		b.hashes, b.parents, b.ends = append(b.hashes, h), append(b.parents, last), append(b.ends, 0)
		last = uint32(len(b.hashes))
	}
	return last
}

// extend notes chunks that are stored behind a prompt: its answer.
func (b *book) extend(hashes []uint64, known int) {
	if known == 0 || known == len(hashes) {
		return
	}
	from := b.at(hashes, known)
	at := b.ends[from-1]
	if at == 0 || b.list[at-1].last != from {
		return
	}
	p := &b.list[at-1]
	p.last = b.grow(hashes[known:], from)
	b.ends[p.last-1] = at
	b.plays += int64(len(hashes) - int(p.length))
	p.length = uint32(len(hashes))
}

// full reports whether the sample is to be made smaller.
func (b *book) full() bool {
	return len(b.hashes) > b.room || len(b.list) > b.room/chunksInPrompt || b.plays > int64(b.room)*playsOfChunk
}

// sizes are how many chunks the smallest and the largest cache of a report hold.
type sizes struct{ smallest, largest int64 }

// shrink makes room. Of a sample of one or two prompts nothing may be left.
func (b *book) shrink(of sizes) {
	window := int64(len(b.hashes)) << b.shift
	long := b.plays / int64(len(b.list)) // a prompt
	if window < turnovers*of.largest && of.smallest>>(b.shift+1) >= promptsInCache*long {
		b.halve()
		return
	}
	b.cut = true
	b.rebuild(b.list[(len(b.list)+3)/4:])
	if window > tooLong*turnovers*of.largest {
		b.widen()
	}
}

// widen takes twice as many sessions in from now on.
func (b *book) widen() {
	if b.shift > 0 {
		b.shift--
		b.gate = &gate{shift: b.shift, heads: b.gate.heads, spaces: b.gate.spaces}
	}
}

// halve leaves half of the sessions out.
func (b *book) halve() {
	b.shift = min(b.shift+1, 40)
	b.rebuild(b.list)
}

// rebuild makes the tree anew of those prompts that are in the sample.
func (b *book) rebuild(list []prompt) {
	heads := b.findHeads()
	sessions := b.sessions(heads)
	old := *b
	*b = book{numbers: make(map[uint64]uint32), shift: old.shift, cut: old.cut, room: old.room, gate: &gate{shift: old.shift, heads: make(map[uint64]struct{}), spaces: make(map[uint64]struct{})}}
	place := make([]uint32, len(old.hashes)) // in the new tree, + 1
	for i, head := range heads {
		if head {
			b.gate.heads[old.hashes[i]] = struct{}{}
		}
	}
	var path []uint32
	for _, p := range list {
		if b.shift > 0 && !in(sessions[p.last-1], b.shift) {
			continue
		}
		path = path[:0]
		at := p.last
		for ; at != 0 && place[at-1] == 0; at = old.parents[at-1] {
			path = append(path, at-1)
		}
		last := uint32(0)
		if at != 0 {
			last = place[at-1]
		}
		for i := len(path) - 1; i >= 0; i-- {
			last = b.grow(old.hashes[path[i]:path[i]+1], last)
			place[path[i]] = last
		}
		p.last, p.shift = place[p.last-1], max(p.shift, b.shift)
		b.gate.spaces[p.space] = struct{}{}
		b.list = append(b.list, p)
		b.ends[p.last-1] = uint32(len(b.list))
		b.plays += int64(p.length)
	}
}

// findHeads says of each chunk whether it belongs to no session of its space. A head stays
// one, so that the sessions behind it stay the same.
func (b *book) findHeads() []bool {
	leaves, all := make([]uint32, len(b.hashes)), make(map[uint64]uint32)
	spaces := b.spaces()
	for i, up := range slices.Backward(b.parents) {
		if leaves[i] == 0 {
			leaves[i] = 1
			all[spaces[i]]++
		}
		if up != 0 {
			leaves[up-1] += leaves[i]
		}
	}
	heads := make([]bool, len(b.hashes))
	for i, n := range leaves {
		branches := all[spaces[i]]
		heads[i] = n >= max(branches/headShare, min(headLeast, max(2, branches/headQuarter))) || b.gate.isHead(b.hashes[i])
	}
	return heads
}

// spaces is the space of each chunk. Each is in a prompt.
func (b *book) spaces() []uint64 {
	out := make([]uint64, len(b.hashes))
	for i := range b.list {
		out[b.list[i].last-1] = b.list[i].space
	}
	for i, up := range slices.Backward(b.parents) {
		if up != 0 && out[up-1] == 0 {
			out[up-1] = out[i]
		}
	}
	return out
}

// sessions is the hash of the session of each chunk.
func (b *book) sessions(heads []bool) []uint64 {
	out := make([]uint64, len(b.hashes))
	for i, up := range b.parents {
		if up == 0 || heads[up-1] {
			out[i] = b.hashes[i]
		} else {
			out[i] = out[up-1]
		}
	}
	return out
}

// fill copies the book into a sample. Where older prompts have gone, the first quarter only
// fills the caches. Sessions that were not in the book all the time are left out.
func (b *book) fill(s *Sample) {
	heads := b.findHeads()
	sessions := b.sessions(heads)
	s.Parents, s.Prompts = slices.Clone(b.parents), make([]Prompt, 0, len(b.list))
	for i := range b.list {
		s.Shift = max(s.Shift, b.list[i].shift)
	}
	for _, head := range heads {
		if head {
			s.Heads++
		}
	}
	for i := range b.list {
		p := &b.list[i]
		session := sessions[p.last-1]
		if s.Shift > 0 && !in(session, s.Shift) {
			continue
		}
		s.Prompts = append(s.Prompts, Prompt{
			Last: p.last, Chunk: p.chunk, Tokens: p.tokens, Skip: p.skip, Millis: p.millis,
			Group:  int(session % Groups), // these bits do not decide whether it is in
			Warmup: b.cut && i < len(b.list)/4,
		})
	}
}

// gate says which chains are in the sample. It never changes, but for its guess: the book
// makes a new one.
type gate struct {
	shift uint8               // one of 1<<shift sessions is in
	heads map[uint64]struct{} // chunks that belong to no session; with one, all before it
	// spaces are those whose heads were looked for.
	spaces map[uint64]struct{}
	guess  atomic.Int32 // how many heads the last chain had
}

// hashOf is what the sample knows of a key.
func hashOf(space *key.SpaceID, h *key.Hash) uint64 {
	return mix(fold(h) ^ binary.LittleEndian.Uint64(space[:]))
}

func fold(h *key.Hash) uint64 {
	return binary.LittleEndian.Uint64(h[:]) ^ bits.RotateLeft64(binary.LittleEndian.Uint64(h[8:]), 29)
}

// mix spreads what engines may have counted up.
func mix(x uint64) uint64 {
	x = (x ^ x>>32) * 0xd6e8feb86659fd93
	x = (x ^ x>>32) * 0xd6e8feb86659fd93
	return x ^ x>>32
}

// in reports whether a session is in a sample of one in 1<<shift.
func in(session uint64, shift uint8) bool { return session>>(64-uint(shift)) == 0 }

// takes reports whether the session of a chain is in the sample.
func (g *gate) takes(c *key.Chain) bool {
	if c.Len() == 0 || c.Alone {
		return false
	}
	return g.shift == 0 || g.isNew(spaceOf(c)) || in(g.session(c), g.shift)
}

// isNew reports whether nothing is known of a space, though there are few.
func (g *gate) isNew(space uint64) bool {
	_, known := g.spaces[space]
	return !known && len(g.spaces) < mostKnown
}

// spaceOf is what the sample knows of a space.
func spaceOf(c *key.Chain) uint64 { return binary.LittleEndian.Uint64(c.Space[:]) }

// session is the hash that decides about a chain.
func (g *gate) session(c *key.Chain) uint64 {
	return g.of(c.Len(), func(i int) uint64 { return hashOf(&c.Space, &c.Hashes[i]) })
}

// of is the hash of the first of n chunks that is no head, or of the last.
func (g *gate) of(n int, at func(int) uint64) uint64 {
	heads, end := 0, 1 // so many are heads; number end-1 is none, or is not known yet
	guess := int(g.guess.Load())
	if guess > 0 && guess < n {
		if end = guess; g.isHead(at(guess - 1)) {
			heads, end = guess, guess+1
		}
	}
	for end < n && g.isHead(at(end-1)) {
		heads, end = end, min(2*end, n)
	}
	for heads < end-1 {
		if m := (heads + end) / 2; g.isHead(at(m - 1)) {
			heads = m
		} else {
			end = m
		}
	}
	if heads != guess {
		g.guess.Store(int32(heads))
	}
	return at(end - 1)
}

func (g *gate) isHead(h uint64) bool {
	_, head := g.heads[h]
	return head
}
