package directory

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/kvstored/kvstored/key"
)

const stripes = 64

// Directory is a directory that is being written. Its methods may be called concurrently,
// but those about one block follow each other: Put before the block may be freed, Clear
// before its memory is. A nil Directory takes every call and does nothing.
type Directory struct {
	table
	locks [stripes]sync.Mutex
	turn  atomic.Uint64 // which slot of a full set goes next
	done  atomic.Bool
}

// New makes the directory of an arena of so many bytes in mem, which is Bytes(arenaBytes)
// long, zeros, and the caller's.
func New(mem []byte, arenaBytes int64) (*Directory, error) {
	if arenaBytes > maxArena {
		return nil, fmt.Errorf("directory: an arena of %d bytes: %d at most", arenaBytes, int64(maxArena))
	}
	if arenaBytes <= 0 || int64(len(mem)) != Bytes(arenaBytes) {
		return nil, fmt.Errorf("directory: %d bytes of memory for an arena of %d, which takes %d", len(mem), arenaBytes, Bytes(arenaBytes))
	}
	d := &Directory{table: table{mem: mem}}
	h := d.header()
	h.at(headVersion).Store(Version | slotBytes<<32)
	h.at(headSlots).Store(slotsFor(arenaBytes))
	h.at(headArena).Store(uint64(arenaBytes))
	h.at(headHolds).Store(1)
	h.at(headMagic).Store(magic)
	return d, d.check()
}

// Put says that the payload of k, which is sealed, lies at off, a multiple of AlignBytes,
// and has size bytes, above 0, that sum to sum. An earlier place of k is forgotten.
func (d *Directory) Put(k key.Key, off int64, size uint32, sum uint64) {
	if d == nil || d.done.Load() {
		return
	}
	c, set, mu := d.lock(k)
	defer mu.Unlock()
	into, found := d.find(set, &c)
	if !found {
		into = d.slot(set, d.free(set))
	}
	n := into.at(wordNumber)
	n.Add(1)
	for i, w := range c {
		into.at(wordHash + i).Store(w)
	}
	into.at(wordPlace).Store(uint64(off/AlignBytes)<<32 | uint64(size))
	into.at(wordSum).Store(sum)
	n.Add(1)
}

// Clear forgets that k lies at off, before that memory is anything else. Readers that are
// copying it will notice. What lies elsewhere stays.
func (d *Directory) Clear(k key.Key, off int64) {
	d.clear(k, func(place uint64) bool { return place>>32 == uint64(off/AlignBytes) })
}

// Forget forgets the place of k.
func (d *Directory) Forget(k key.Key) { d.clear(k, func(uint64) bool { return true }) }

// clear empties the slot of k if it names such a place.
func (d *Directory) clear(k key.Key, is func(place uint64) bool) {
	if d == nil || d.done.Load() {
		return
	}
	c, set, mu := d.lock(k)
	defer mu.Unlock()
	if s, found := d.find(set, &c); found && is(s.at(wordPlace).Load()) {
		s.at(wordNumber).Add(1)
		s.at(wordPlace).Store(0)
		s.at(wordNumber).Add(1)
	}
}

// Keep says to readers, from now on, that the arena may have another process, which does not
// call Void first: where this one is killed. A reader that does not compare checksums
// reads nothing then.
func (d *Directory) Keep() {
	if d != nil && !d.done.Load() {
		d.header().at(headKept).Store(1)
	}
}

// Void ends the directory for all readers: another process may write the arena from now on.
// The header says so before Clear does nothing any more: a slot that still names memory which
// is another's by then is not believed.
func (d *Directory) Void() {
	if d != nil {
		d.header().at(headHolds).Store(0)
		d.done.Store(true)
	}
}

// lock locks the set of k for the caller, who unlocks mu.
func (d *Directory) lock(k key.Key) (c coded, set uint64, mu *sync.Mutex) {
	c = code(k)
	set = d.set(&c)
	mu = &d.locks[set%stripes]
	mu.Lock()
	return c, set, mu
}

// find is the slot of a key that lies somewhere. The set is locked.
func (d *Directory) find(set uint64, c *coded) (words, bool) {
	for i := range setSlots {
		if s := d.slot(set, i); s.is(c) && s.at(wordPlace).Load() != 0 {
			return s, true
		}
	}
	return words{}, false
}

// free is a slot that is not in use, or the one whose turn it is. The set is locked.
func (d *Directory) free(set uint64) int {
	for i := range setSlots {
		if d.slot(set, i).at(wordPlace).Load() == 0 {
			return i
		}
	}
	return int(d.turn.Add(1) % setSlots)
}
