package arena

import (
	"errors"
	"fmt"
	"os"
)

// Files are the descriptors by which another process goes on with an arena.
type Files struct {
	Whole   *os.File // writable
	Clients *os.File // to pass to clients
}

// ErrNotKept says that an arena was made without Options.Keep.
var ErrNotKept = errors.New("arena: it was not made to be kept")

// Files returns the descriptors for the next process. The arena owns them: do not close them.
func (a *Arena) Files() (Files, error) {
	if a.mapping.whole == nil {
		return Files{}, ErrNotKept
	}
	return Files{Whole: a.mapping.whole, Clients: a.mapping.file}, nil
}

// Adopt makes an arena of the memory of another process, with all that is in it and
// nothing handed out; see Reclaim. It takes the files over, and closes them where it
// fails.
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
	return newArena(m, &o), nil
}

// CountHuge counts the bytes in huge pages anew: Adopt does not fault the memory in, and its
// pages are mapped as they are used.
func (a *Arena) CountHuge() error {
	n, err := hugeMapped(a.mapping.mem)
	if err == nil {
		a.huge.Store(n)
	}
	return err
}

// Reclaim gives the ids that blocks of another process had to Place: those up to the largest
// that taken says. Call it before anything is handed out.
func (a *Arena) Reclaim(largest uint32, taken func(id uint32) bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.mu.used = largest
	for id := largest; id > 0; id-- { // the smallest is used first
		if p := &a.states[id/statesPerPage]; p.Load() == nil {
			p.Store(new(statePage))
		}
		if !taken(id) {
			a.mu.spare = append(a.mu.spare, id)
		}
	}
}

// Place makes a sealed block of n bytes of what lies at off, with one reference, owned by the
// caller, and an id that Reclaim has taken, once. It is false where off is no place for a
// block, or not free; the id is spare then. Nothing has shown yet that the bytes sum to sum:
// the block is Doubtful.
func (a *Arena) Place(id uint32, off int64, n int, sum uint64) (Block, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if n <= 0 || n > MaxPayload || a.mu.closed || !a.mu.space.ReserveTag(off, int64(n), id) {
		a.mu.spare = append(a.mu.spare, id)
		return Block{}, false
	}
	s := a.state(id)
	s.off, s.n = off, int32(n)
	s.sum.Store(sum)
	s.flags.Store(sealed | doubtful)
	s.refs.Store(1)
	return Block{a: a, id: id, gen: s.gen.Load()}, true
}

// Close closes both, for files that no arena has taken over.
func (f Files) Close() {
	for _, file := range []*os.File{f.Whole, f.Clients} {
		if file != nil {
			_ = file.Close() // it is memory: nothing is lost
		}
	}
}
