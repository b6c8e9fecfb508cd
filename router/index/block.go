package index

import (
	"slices"
	"sync/atomic"
)

// block is one block of tokens behind all those before it. Two of them are a cache
// line. Readers without a lock read key, cover and stamp; the rest is the writer's.
type block struct {
	key   atomic.Uint64
	cover atomic.Uint64 // setID in the low half; the high half counts changes
	stamp atomic.Uint32 // when it was last stored or found, in ticks of the index
	own   setID         // which workers have it, in which media

	up    uint32 // the parent, and many
	child uint32 // the first; also the list of free blocks
}

// many marks a block whose parent has other children.
const many = 1 << 31

func (b *block) parent() uint32 { return b.up &^ many }

const (
	blockBytes   = 32
	pageBlocks   = 4096
	firstBlocks  = 256 // of the first page: most shards are small
	root         = 0   // the block that stands for the beginning of prompts
	maxBlocks    = 1 << numberBits
	aliasBytes   = 10 // hash and scheme
	tableBytes   = 6  // of a table, for each entry
	versionShift = 32
)

type page [pageBlocks]block

// blocks are all blocks of a shard, in pages without pointers. The first blocks
// lie in a small page, and leave room unused in the first large one.
type blocks struct {
	few   [firstBlocks]block
	pages atomic.Pointer[[]*page]
	used  uint32 // numbers below it were taken once
	free  uint32 // the first that waits to be used again, 0 = none
	count int

	siblings siblings
}

func newBlocks() *blocks {
	b := &blocks{used: root + 1, siblings: siblings{of: make(map[uint32]sibling)}}
	b.pages.Store(new([]*page))
	return b
}

func (b *blocks) at(n uint32) *block {
	if n < firstBlocks {
		return &b.few[n]
	}
	return &(*b.pages.Load())[n/pageBlocks][n%pageBlocks]
}

func (b *blocks) key(n uint32) uint64 { return b.at(n).key.Load() }

// take returns a block that nothing points to.
func (b *blocks) take() uint32 {
	b.count++
	if n := b.free; n != 0 {
		b.free = b.at(n).child
		return n
	}
	if pages := *b.pages.Load(); b.used >= firstBlocks && b.used >= uint32(len(pages))*pageBlocks {
		pages = append(pages, new(page)) // readers of the old slice stop before it
		b.pages.Store(&pages)
	}
	b.used++
	return b.used - 1
}

// give takes a block back. Its version changes, so that a reader that still has
// its number notices.
func (b *blocks) give(n uint32) {
	bl := b.at(n)
	bl.setCover(empty)
	bl.child, b.free = b.free, n
	b.count--
}

func (b *blocks) bytes() int64 {
	return (int64(len(*b.pages.Load()))*pageBlocks+firstBlocks)*blockBytes + int64(b.siblings.most)*siblingBytes
}

func (b *blocks) liveBytes() int64 {
	return int64(b.count)*blockBytes + int64(len(b.siblings.of))*siblingBytes
}

// coverSet is the cover as the writer reads it.
func (b *block) coverSet() setID { return setID(b.cover.Load()) }

func (b *block) setCover(id setID) {
	b.cover.Store((b.cover.Load()>>versionShift+1)<<versionShift | uint64(id))
}

// read returns the cover of the block if it has this key, with its version.
func (b *block) read(key uint64) (word uint64, found bool) {
	for {
		word = b.cover.Load()
		found = b.key.Load() == key
		if b.cover.Load() == word {
			return word, found
		}
	}
}

// content appends the elements of the block's cover to dst, if it still is word.
// The place of a set may be used again while it is read; then the block's cover
// has changed before.
func (b *block) content(dst []element, word uint64, s *sets) ([]element, bool) {
	id := setID(word)
	if !id.stored() {
		if id != empty {
			dst = append(dst, id.element())
		}
		return dst, true
	}
	words := s.at(id)
	n := min(int(atomic.LoadUint32(&words[1])), len(words)-headWords)
	from := len(dst)
	dst = slices.Grow(dst, n)[:from+n]
	words = words[headWords : headWords+n]
	for i := range words {
		dst[from+i] = element(atomic.LoadUint32(&words[i]))
	}
	return dst, b.cover.Load() == word
}
