package arena

import (
	"errors"
	"fmt"
	"os"

	"github.com/kvstored/kvstored/internal/extent"
)

// Files are the descriptors by which another process goes on with an arena. In direct
// mode both are one.
type Files struct {
	Whole   *os.File // writable
	Clients *os.File // to pass to clients
}

// ErrNoHandOver says that an arena was made without Options.HandOver.
var ErrNoHandOver = errors.New("arena: it was not made to be handed over")

// Files returns the descriptors for a successor. The arena owns them: do not close them.
func (a *Arena) Files() (Files, error) {
	if a.mapping.whole == nil {
		return Files{}, ErrNoHandOver
	}
	return Files{Whole: a.mapping.whole, Clients: a.mapping.file}, nil
}

// Adopt makes an arena of the memory of another process, with all that is in it and
// nothing handed out; see Place. It takes the files over, and closes them where it
// fails. The other process may use the memory until the caller writes.
func Adopt(f Files, o Options) (*Arena, error) {
	o.CapacityBytes = o.CapacityBytes / AlignBytes * AlignBytes
	m := mapping{file: f.Clients, whole: f.Whole}
	err := o.check()
	if err == nil {
		err = m.adopt(o)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("arena: adopt: %w", err), m.close())
	}
	return newArena(m, o.CapacityBytes), nil
}

// Renew makes an arena of the memory of a, with all that is in it and nothing handed
// out. Of a nothing may be used any more but blocks that something still writes, which
// are to be kept out of use by Exclude; and a is not to be closed.
func (a *Arena) Renew() *Arena { return newArena(a.mapping, a.capacity) }

// Place makes a sealed block of n bytes with one reference, owned by the caller, of what
// lies at off. It is false where off is no place for a block, or not free. The bytes are
// as they are: where they need not sum to sum the block is Doubtful.
func (a *Arena) Place(off int64, n int, sum uint64, doubts bool) (Block, bool) {
	if n <= 0 || n > MaxPayload {
		return Block{}, false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.mu.closed || !a.mu.space.ReserveTag(off, int64(n), a.nextID()) {
		return Block{}, false
	}
	id := a.takeID()
	s := a.state(id)
	s.off, s.n = off, int32(n)
	s.sum.Store(sum)
	s.flags.Store(sealed)
	if doubts {
		s.flags.Store(sealed | doubtful)
	}
	s.refs.Store(1)
	return Block{a: a, id: id, gen: s.gen.Load()}, true
}

// Exclude keeps a part out of use for good, under an id that no block gets any more. It
// is false where the part is not free.
func (a *Arena) Exclude(off, n int64) (id uint32, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.mu.closed || !a.mu.space.ReserveTag(off, n, a.nextID()) {
		return 0, false
	}
	a.mu.voids++
	a.mu.void += extent.RoundUp(n)
	return a.takeID(), true
}

// Others visits the parts that are out of use, and the blocks whose ids known does not
// know. Neither function may call the arena.
func (a *Arena) Others(known func(id uint32) bool, visit func(off, n int64)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.mu.space.Walk(0, false, func(p extent.Piece) bool {
		if !p.Free && !known(p.Tag) {
			visit(p.Off, p.Bytes)
		}
		return true
	})
}

// Close closes both, for files that no arena has taken over.
func (f Files) Close() {
	for _, file := range []*os.File{f.Whole, f.Clients} {
		if file != nil {
			_ = file.Close() // it is memory: nothing is lost
		}
	}
}
