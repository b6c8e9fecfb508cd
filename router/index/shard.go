package index

import (
	"fmt"
	"sync"
	"sync/atomic"
)

// Shard is the index of one name: one model, tenant, salt and LoRA adapter. Its
// changes wait for each other; [Shard.Find] waits for nothing.
type Shard struct {
	index  *Index
	name   Name
	config Config

	tree atomic.Pointer[tree] // replaced when it is packed anew

	mu struct {
		sync.Mutex
		dropped bool
		claims  map[claim]uint32 // when each was said last, in seconds
		held    map[uint32]int   // blocks by worker, each for each group and medium
		bytes   int64            // as the index has it

		trimmed, expired int64
	}
}

// allMedia is the mask of all media.
const allMedia mask = 1<<Media - 1

func newShard(x *Index, n Name, c Config) *Shard {
	s := &Shard{index: x, name: n, config: c}
	s.tree.Store(newTree(x.seed, c.partial()))
	s.mu.claims, s.mu.held = make(map[claim]uint32), make(map[uint32]int)
	return s
}

// Name is the name that the shard was opened with.
func (s *Shard) Name() Name { return s.name }

// Config is what the shard was opened with. Its Groups are not to be changed.
func (s *Shard) Config() Config { return s.config }

// writer is one change of a shard, under its lock.
type writer struct {
	*Shard
	t      *tree
	member *member
	column column
	medium mask
	now    uint32
	gained int // blocks that the worker has and did not have, less those it has no more
}

// end counts, and ends the change.
func (w *writer) end() {
	w.count(w.column.slot(), w.gained)
	w.Shard.end()
}

// begin checks a change and takes the lock. After it the caller calls end.
func (s *Shard) begin(what string, at At, blocks int) (writer, error) {
	switch {
	case at.Group < 0 || at.Group >= len(s.config.Groups):
		return writer{}, s.failed(what, at, "group %d: %w; there are %d", at.Group, ErrGroup, len(s.config.Groups))
	case at.Medium >= Media:
		return writer{}, s.failed(what, at, "%w: %d", ErrMedium, at.Medium)
	case blocks > s.index.options.MaxEvent:
		return writer{}, s.failed(what, at, "%d blocks: %w; at most %d", blocks, ErrTooManyBlocks, s.index.options.MaxEvent)
	}
	now := s.index.tick()
	s.mu.Lock()
	w := writer{Shard: s, t: s.tree.Load(), medium: 1 << at.Medium, now: now}
	r := s.index.workers.Load() // under the lock: Unregister sweeps after it has replaced this
	slot, err := r.slot(at.Worker)
	switch {
	case s.mu.dropped:
		err = ErrDropped
	case err == nil && max(w.t.blocks.count, len(w.t.alias.extra))+blocks >= maxBlocks:
		err = fmt.Errorf("%w: it has %d blocks", ErrFull, w.t.blocks.count)
	}
	if err != nil {
		s.mu.Unlock()
		return writer{}, s.failed(what, at, "%w", err)
	}
	w.member, w.column = &r.members[slot], columnOf(slot, at.Group)
	return w, nil
}

// failed is an error that names the call, the worker and the shard.
func (s *Shard) failed(what string, at At, format string, args ...any) error {
	return fmt.Errorf("%s, worker %s, %s: %w", what, at.Worker, s.name, fmt.Errorf(format, args...))
}

// end gives the lock back, after it has counted, and packed anew a tree that is
// mostly empty. Where the budget is nearly exceeded the coldest leaves go.
func (s *Shard) end() {
	added := s.settle()
	s.mu.Unlock()
	s.index.trim(added)
}

// packBytes is how much room a tree may have over twice its need.
const packBytes = 512 << 10

func (s *Shard) settle() (added int64) {
	t := s.tree.Load()
	t.sets.forget()
	if t.bytes() > 2*t.liveBytes()+packBytes {
		s.tree.Store(t.repacked())
	}
	if added = s.liveBytes() - s.mu.bytes; added != 0 {
		s.index.bytes.Add(added)
		s.mu.bytes += added
	}
	return added
}

// liveBytes is what the budget counts. The caller has the lock.
func (s *Shard) liveBytes() int64 {
	return s.tree.Load().liveBytes() + int64(len(s.mu.claims))*claimBytes
}

// Store says that a worker has blocks, which follow each other: hashes are their
// sequence hashes, and parent is the block before the first, which the shard
// must know, from any worker. Blocks that the worker has already stay as they
// are. It returns how many blocks were stored: all, or those before the one of
// which the error tells that it stands below another parent.
func (s *Shard) Store(at At, parent Parent, hashes []uint64) (int, error) {
	const what = "store"
	w, err := s.begin(what, at, len(hashes))
	if err != nil {
		return 0, err
	}
	defer w.end()
	p := uint32(root)
	if parent.below {
		if p = w.t.table.get(parent.hash); p == 0 {
			return 0, s.failed(what, at, "%w %s", ErrUnknownParent, parent)
		}
	}
	level := w.t.level(p, w.column)
	for i, h := range hashes {
		if i%warmed == 0 {
			w.t.warm(hashes[i:min(i+warmed, len(hashes))])
		}
		n := w.t.table.get(h)
		if n == 0 {
			n = w.t.add(h, p, w.now)
		} else if w.t.blocks.at(n).parent() != p {
			w.t.touch(p, w.now)
			return i, s.failed(what, at, "block %d of %d, %#x: %w", i+1, len(hashes), h, ErrParent)
		}
		level = w.hold(n, level)
		p = n
	}
	w.t.touch(p, w.now)
	return len(hashes), nil
}

// hold marks that the worker has a block, and returns how far it reaches for it
// and all before it: the level above the next one.
func (w *writer) hold(n uint32, above int) int {
	b := w.t.blocks.at(n)
	if w.member.ttl > 0 {
		w.mu.claims[claim{b.key.Load(), w.column.with(w.medium)}] = w.index.seconds()
	}
	if b.own == empty && b.child == 0 { // new: nothing to look up, and nothing below
		level := max(above, w.medium.level())
		w.gained++
		b.own = one(w.column.with(w.medium))
		if level < none {
			b.setCover(one(w.column.with(cover(level))))
		}
		return w.above(level)
	}
	m := w.t.sets.get(b.own, w.column)
	if m&w.medium == 0 {
		w.gained++
		w.t.set(n, w.column, m|w.medium, above)
	}
	return w.above(max(above, (m | w.medium).level()))
}

// count notes that a worker has so many blocks more.
func (s *Shard) count(slot uint32, more int) {
	switch n := s.mu.held[slot] + more; {
	case more == 0:
	case n == 0:
		delete(s.mu.held, slot)
	default:
		s.mu.held[slot] = n
	}
}

// Held is how many blocks a worker has in this shard, each for each group and medium;
// 0 for one that is not registered.
func (s *Shard) Held(worker Worker) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	slot, err := s.index.workers.Load().slot(worker)
	if err != nil {
		return 0
	}
	return s.mu.held[slot]
}

// above is the level of a block as the one behind it sees it.
func (w *writer) above(level int) int {
	if w.t.partial>>w.column.group()&1 != 0 {
		return 0
	}
	return level
}

// Remove says that a worker does not have blocks any more, in any order, by
// their sequence hashes. What stands on them stays known, and counts again once
// they are stored again. It returns how many of them the worker was not known
// to have.
func (s *Shard) Remove(at At, hashes []uint64) (int, error) {
	w, err := s.begin("remove", at, len(hashes))
	if err != nil {
		return 0, err
	}
	defer w.end()
	unknown := 0
	for i, h := range hashes {
		if i%warmed == 0 {
			w.t.warm(hashes[i:min(i+warmed, len(hashes))])
		}
		if n := w.t.table.get(h); n == 0 || !w.lose(n, w.medium) {
			unknown++
		}
	}
	return unknown, nil
}

// lose takes media of a block from the worker. It reports whether the worker had
// it in one of them.
func (w *writer) lose(n uint32, media mask) bool {
	b := w.t.blocks.at(n)
	had := w.t.sets.get(b.own, w.column)
	if had&media == 0 {
		return false
	}
	if w.member.ttl > 0 {
		w.disclaim(b.key.Load(), w.column.with(had&media))
	}
	w.gained -= w.column.with(had & media).media()
	w.t.set(n, w.column, had&^media, w.t.level(b.parent(), w.column))
	if had&^media == 0 {
		w.loseAliases(n)
		w.t.prune(n)
	}
	return true
}

// Clear forgets what a worker holds in this shard, in some media or, if none is
// named, in all. It takes as long as a look at each block of the shard.
func (s *Shard) Clear(worker Worker, media ...Medium) error {
	gone := allMedia
	if len(media) > 0 {
		gone = 0
	}
	for _, m := range media {
		if m >= Media {
			return fmt.Errorf("clear worker %s, %s: %w: %d", worker, s.name, ErrMedium, m)
		}
		gone |= 1 << m
	}
	w, err := s.begin("clear", At{Worker: worker}, 0)
	if err != nil {
		return err
	}
	defer w.end()
	w.clear(gone)
	return nil
}

// clear is for a worker that is not registered any more.
func (s *Shard) clear(slot uint32, gone mask) {
	s.mu.Lock()
	r := s.index.workers.Load()
	w := writer{Shard: s, t: s.tree.Load(), member: &r.members[slot], column: columnOf(slot, 0)}
	defer w.end()
	w.clear(gone)
}

func (w *writer) clear(gone mask) {
	for group := range w.config.Groups {
		w.column = columnOf(w.column.slot(), group)
		for n := uint32(root + 1); n < w.t.blocks.used; n++ {
			if w.t.blocks.at(n).own != empty {
				w.lose(n, gone)
			}
		}
	}
}

// drop empties the shard for good.
func (s *Shard) drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.dropped = true
	clear(s.mu.claims)
	clear(s.mu.held)
	s.tree.Store(newTree(s.index.seed, s.config.partial()))
	s.settle()
}

// Stats are the shard's numbers.
func (s *Shard) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.tree.Load()
	return Stats{
		Shards: 1, Workers: len(s.index.workers.Load().slots),
		Blocks: t.blocks.count, Sets: t.sets.count, Aliases: t.alias.count(), Claims: len(s.mu.claims),
		Bytes: s.mu.bytes, Memory: t.bytes() + int64(len(s.mu.claims))*claimBytes,
		Trimmed: s.mu.trimmed, Expired: s.mu.expired,
	}
}
