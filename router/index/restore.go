package index

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/zeebo/xxh3"
)

// Restore makes an index from a snapshot. Later changes are not in it:
// the caller asks the workers, or clears those that it cannot ask. An error
// about the snapshot wraps [ErrSnapshot].
func Restore(snapshot []byte, o Options) (*Index, error) {
	x, err := New(o)
	if err != nil {
		return nil, err
	}
	if len(snapshot) < len(snapshotMagic)+8 || string(snapshot[:len(snapshotMagic)]) != snapshotMagic {
		return nil, fmt.Errorf("restore %d bytes: %w: it does not begin as one of this version", len(snapshot), ErrSnapshot)
	}
	body := snapshot[:len(snapshot)-8]
	if sum := binary.LittleEndian.Uint64(snapshot[len(body):]); sum != xxh3.Hash(body) {
		return nil, fmt.Errorf("restore %d bytes: %w: wrong checksum; it was cut or changed", len(snapshot), ErrSnapshot)
	}
	d := &decoder{in: body[len(snapshotMagic):], size: len(body), x: x}
	d.index()
	if d.err == nil && len(d.in) > 0 {
		d.fail("%d bytes behind the end", len(d.in))
	}
	if d.err != nil {
		return nil, fmt.Errorf("restore %d bytes: %w", len(snapshot), d.err)
	}
	return x, nil
}

// decoder reads a snapshot. After the first error its numbers are 0.
type decoder struct {
	in   []byte
	size int // of all
	x    *Index
	now  uint32
	err  error

	members []member
}

func (d *decoder) fail(format string, args ...any) {
	if d.err == nil {
		d.err = fmt.Errorf("%w: at byte %d: %w", ErrSnapshot, d.size-len(d.in), fmt.Errorf(format, args...))
		d.in = nil
	}
}

// number reads a number up to a limit.
func (d *decoder) number(what string, limit uint64) uint64 {
	n, size := binary.Uvarint(d.in)
	if size <= 0 {
		d.fail("no %s", what)
		return 0
	}
	if n > limit {
		d.fail("%s is %d, at most %d", what, n, limit)
		return 0
	}
	d.in = d.in[size:]
	return n
}

func (d *decoder) eight(what string) uint64 {
	if len(d.in) < 8 {
		d.fail("no %s", what)
		return 0
	}
	n := binary.LittleEndian.Uint64(d.in)
	d.in = d.in[8:]
	return n
}

func (d *decoder) text(what string) string {
	n := d.number("length of "+what, maxNameBytes)
	if n > uint64(len(d.in)) {
		d.fail("%s is cut", what)
		return ""
	}
	s := string(d.in[:n])
	d.in = d.in[n:]
	return s
}

func (d *decoder) index() {
	d.now = uint32(d.number("clock", 1<<32-1))
	d.x.born = d.x.options.Now().Add(-time.Duration(d.now) * tickTime)
	d.x.ticks.Store(d.now)
	d.workers()
	for range d.number("number of shards", uint64(d.x.options.MaxShards)) {
		d.shard()
		if d.err != nil {
			return
		}
	}
}

func (d *decoder) workers() {
	d.x.mu.Lock()
	defer d.x.mu.Unlock()
	r := d.x.workers.Load().clone()
	for range d.number("number of workers", uint64(d.x.options.MaxWorkers)) {
		w := Worker{ID: d.text("worker"), Rank: uint32(d.number("rank", 1<<32-1))}
		o := WorkerOptions{Scheme: d.text("scheme"), TTL: time.Duration(d.number("time to live", uint64(maxTTL/time.Second))) * time.Second}
		if d.err != nil {
			return
		}
		if err := errors.Join(checkWorker(w, o), d.x.enter(r, w, o)); err != nil {
			d.fail("%w", err)
		}
	}
	d.x.workers.Store(r)
	d.members = r.members
}

func (d *decoder) shard() {
	name := Name{d.text("model"), d.text("tenant"), d.text("salt"), d.text("LoRA")}
	c := Config{BlockTokens: int(d.number("tokens of a block", maxBlockTokens))}
	for range d.number("number of groups", MaxGroups) {
		c.Groups = append(c.Groups, Group{Kind(d.number("kind", 255)), int(d.number("tokens of a group", maxGroupTokens))})
	}
	c.Hash = Hash{kind: hashKind(d.number("hash", uint64(dynamoUnseeded))), seed: d.eight("seed")}
	if d.err != nil {
		return
	}
	s, err := d.x.Open(name, c)
	if err != nil {
		d.fail("%w", err)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	d.blocks(s)
	for range d.number("number of claims", uint64(len(d.in))) {
		d.claim(s)
		if d.err != nil {
			return
		}
	}
	s.settle()
}

// restored is how far the blocks of a shard are read.
type restored struct {
	t     *tree
	chain []uint32 // the way to the last block
	sets  []setID  // of two and more elements, as they came
	room  []element

	covers map[[2]setID]setID // by a block's own set and its parent's cover
}

func (d *decoder) blocks(s *Shard) {
	r := &restored{t: s.tree.Load(), chain: []uint32{root}, covers: make(map[[2]setID]setID)}
	for range d.number("number of blocks", maxBlocks-1) {
		d.block(s, r)
		if others := d.x.bytes.Load(); others+r.t.liveBytes() > d.x.options.Bytes {
			d.fail("it needs more than the %d bytes of the budget; raise it, or begin empty", d.x.options.Bytes)
		}
		if d.err != nil {
			return
		}
	}
	d.end(r)
	for _, id := range r.sets {
		r.t.sets.release(id)
	}
}

// end checks the block at the end of a chain: it is there because a worker has
// it.
func (d *decoder) end(r *restored) {
	if last := r.chain[len(r.chain)-1]; last != root && r.t.blocks.at(last).own == empty {
		d.fail("no worker has the last block of a chain")
	}
}

func (d *decoder) block(s *Shard, r *restored) {
	up := d.number("step up", uint64(len(r.chain)-1))
	if up > 0 {
		d.end(r)
	}
	r.chain = r.chain[:len(r.chain)-int(up)]
	parent := r.chain[len(r.chain)-1]
	what := d.number("set", uint64(2*(knownSet+len(r.sets))-1))
	own := d.set(s, r, parent, what>>1)
	age := d.number("age", uint64(d.now)>>ageShift)
	key := d.eight("key")
	if d.err == nil && r.t.table.get(key) != 0 {
		d.fail("block %#x comes twice", key)
	}
	if d.err != nil {
		return
	}
	n := r.t.add(key, parent, d.now-uint32(age<<ageShift))
	r.t.blocks.at(n).own = own
	r.room = r.t.sets.all(r.room[:0], own)
	for _, e := range r.room {
		s.count(e.column().slot(), e.media())
	}
	r.cover(n)
	r.chain = append(r.chain, n)
	if what&1 != 0 {
		d.aliases(r.t, n)
	}
}

// set reads a block's own set. The result has a reference.
func (d *decoder) set(s *Shard, r *restored, parent uint32, what uint64) setID {
	switch what {
	case sameSet:
		id := r.t.blocks.at(parent).own
		r.t.sets.retain(id)
		return id
	case newSet:
		r.room = r.room[:0]
		for range d.number("size of a set", uint64(len(d.in))) {
			e := d.element(s)
			if n := len(r.room); n > 0 && e.column() <= r.room[n-1].column() {
				d.fail("a set is not in order")
			}
			if d.err != nil {
				return empty
			}
			r.room = append(r.room, e)
		}
		id := r.t.sets.intern(r.room)
		if id.stored() {
			r.t.sets.retain(id)
			r.sets = append(r.sets, id)
		}
		return id
	default:
		id := r.sets[what-knownSet]
		r.t.sets.retain(id)
		return id
	}
}

func (d *decoder) element(s *Shard) element {
	e := element(d.number("element", 1<<31-1))
	switch c := e.column(); {
	case d.err != nil:
	case int(c.slot()) >= len(d.members):
		d.fail("worker %d is not in the list", c.slot())
	case c.group() >= len(s.config.Groups):
		d.fail("group %d of %d", c.group(), len(s.config.Groups))
	case e.mask() == 0:
		d.fail("a worker has a block in no medium")
	}
	return e
}

// cover computes a new block's cover from its own set and its parent.
func (r *restored) cover(n uint32) {
	b := r.t.blocks.at(n)
	from := [2]setID{b.own, r.t.blocks.at(b.parent()).coverSet()}
	if b.parent() == root {
		from[1] = ^empty // no cover: two of its masks' bits are set
	}
	if id, known := r.covers[from]; known {
		r.t.sets.retain(id)
		b.setCover(id)
		return
	}
	r.room = r.t.sets.all(r.room[:0], b.own)
	kept := r.room[:0]
	for _, e := range r.room {
		if level := max(r.t.level(b.parent(), e.column()), e.mask().level()); level < none {
			kept = append(kept, e.column().with(cover(level)))
		}
	}
	id := r.t.sets.intern(kept)
	b.setCover(id)
	if b.own.stored() {
		r.covers[from] = id // it stays: no block goes while a snapshot is read
	}
}

func (d *decoder) aliases(t *tree, n uint32) {
	for range d.number("number of aliases", uint64(len(d.in))) {
		worker := d.number("worker of an alias", uint64(len(d.members)))
		hash := d.eight("alias")
		if d.err != nil {
			return
		}
		if worker == uint64(len(d.members)) || !d.named(t, n, d.members[worker].scheme) {
			d.fail("alias %#x of a scheme that no worker with the block has", hash)
			return
		}
		scheme := d.members[worker].scheme
		if t.alias.get(hash, scheme) != 0 || t.alias.has(n, scheme) {
			d.fail("alias %#x comes twice", hash)
			return
		}
		t.alias.add(hash, scheme, n)
	}
}

// named reports whether a worker with this scheme has a block.
func (d *decoder) named(t *tree, n uint32, scheme uint16) bool {
	t.sets.scratch = t.sets.all(t.sets.scratch[:0], t.blocks.at(n).own)
	return slices.ContainsFunc(t.sets.scratch, func(e element) bool { return d.members[e.column().slot()].scheme == scheme })
}

func (d *decoder) claim(s *Shard) {
	key, e := d.eight("key of a claim"), d.element(s)
	said := uint32(d.number("time of a claim", 1<<32-1))
	if d.err != nil {
		return
	}
	t := s.tree.Load()
	n := t.table.get(key)
	switch {
	case e.mask() != cover(e.mask().level()):
		d.fail("a claim for more than one medium")
	case n == 0 || t.sets.get(t.blocks.at(n).own, e.column())&e.mask() == 0:
		d.fail("a claim for a block that the worker does not have")
	case d.members[e.column().slot()].ttl == 0:
		d.fail("a claim of a worker without a time to live")
	default:
		s.mu.claims[claim{key, e}] = said
	}
}
