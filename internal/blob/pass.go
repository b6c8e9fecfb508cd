package blob

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

const (
	// PassNames is how many names one pass over the store takes at most.
	PassNames = 256
	// DeleteNames is how many names one pass deletes at most: changes of all of
	// them, and of a name in four besides, wait while the tiers below delete.
	DeleteNames = 64
)

// names is some names, in one pass over the store. What the store says of names[i]
// is at i of each of the tables, which are good for one call.
type names struct {
	*Store
	list   [][]byte
	hashes [PassNames]key.Hash
	kept   [PassNames]found // what the shelter knew when the pass began
	now    time.Time
	has    [PassNames]bool
	owed   [PassNames]bool
	late   [PassNames]bool // it has expired
	is     [PassNames]bool // what is sheltered is its value now
	none   [PassNames]bool // of a lease: no tier has a value
	rest   part            // not sheltered
	absent part            // of rest, from DRAM
	fresh  part            // of rest, to be sheltered
}

// part is some of the names, for which the store is asked once more.
type part struct {
	which  [PassNames]uint8 // their places among the names
	hashes [PassNames]key.Hash
	refs   [PassNames]tier.Ref
	at     [PassNames]tier.Set
	n      int
}

var passes = sync.Pool{New: func() any { return new(names) }}

// single is the tokens of chunks that stand alone.
var single = func() (tokens [PassNames]uint32) {
	for i := range tokens {
		tokens[i] = 1
	}
	return tokens
}()

// alone is values as one chain, of chunks that stand alone.
func (s *Store) alone(hashes []key.Hash) key.Chain {
	return key.Chain{Space: s.space, Hashes: hashes, Tokens: single[:len(hashes)], Alone: true}
}

// borrow begins a pass over some names, PassNames at most. The shelter knows the
// hashes of its own: SHA-256 takes longer than all else that is done for a name.
func (s *Store) borrow(list [][]byte) *names {
	p := passes.Get().(*names)
	p.Store, p.list = s, list
	s.shelter.recall(list, &p.kept)
	for i, name := range list {
		if p.hashes[i] = p.kept[i].hash; p.kept[i].id == 0 {
			p.hashes[i] = hashOf(name)
		}
	}
	return p
}

// ask notes which deletions are owed, before the store is looked at.
func (p *names) ask() {
	for i := range p.list {
		p.has[i], p.late[i], p.owed[i] = false, false, p.debts.owes(p.hashes[i])
	}
}

func (p *names) give() {
	p.Store, p.list = nil, nil
	passes.Put(p)
}

// add takes name i into a part.
func (p *part) add(i int, h key.Hash) {
	p.which[p.n], p.hashes[p.n] = uint8(i), h
	p.n++
}

// CountHas is how many of names have a value, in passes over all of them; it is
// as if Has were called for each, so that a name that is there twice counts twice.
// Nothing is allocated for a name whose value is kept already.
func (s *Store) CountHas(ctx context.Context, list [][]byte) (n int) {
	for part := range slices.Chunk(list, PassNames) {
		p := s.borrow(part)
		p.look(ctx, true)
		for _, has := range p.has[:len(part)] {
			if has {
				n++
			}
		}
		p.give()
	}
	return n
}

// look is has for all names of a pass.
func (p *names) look(ctx context.Context, keep bool) {
	p.ask()
	p.now, p.rest.n, p.absent.n = time.Now(), 0, 0
	if keep {
		p.readSheltered()
	} else {
		for i, h := range p.hashes[:len(p.list)] {
			p.rest.add(i, h)
		}
	}
	if p.rest.n > 0 {
		p.readHeld(keep)
	}
	if p.absent.n > 0 {
		p.lookBelow(ctx, keep)
	}
	for i, late := range p.late[:len(p.list)] {
		if late && keep {
			p.forgetExpired(ctx, p.hashes[i])
		}
	}
}

// readSheltered answers for the names whose values are sheltered, without a look at
// them. The other names are in rest then.
func (p *names) readSheltered() {
	hashes := p.hashes[:len(p.list)]
	c := p.alone(hashes)
	p.o.Stack.Current(&c, func(i int) ledger.ID { return p.kept[i].id }, p.is[:len(hashes)])
	for i, is := range p.is[:len(hashes)] {
		if !is {
			p.rest.add(i, hashes[i])
			continue
		}
		h := header{expires: p.kept[i].expires}
		p.late[i] = h.expired(p.now) && !p.owed[i]
		p.has[i] = !p.late[i] && !p.owed[i]
	}
}

// parse reads the header of name i.
func (p *names) parse(i int, ref tier.Ref) {
	if p.owed[i] {
		return
	}
	h, ok := parseHeader(ref.Block.Bytes())
	p.has[i] = ok && h.of(p.list[i], p.now)
	p.late[i] = !p.has[i] && h.expired(p.now)
}

// readHeld reads the headers of the values in rest that are in DRAM, and shelters
// them with keep. The other names that are not owed are absent then.
func (p *names) readHeld(keep bool) {
	part := &p.rest
	c := p.alone(part.hashes[:part.n])
	p.o.Stack.HoldEach(ledger.Daemon, ledger.IO, &c, part.refs[:])
	for j, i := range part.which[:part.n] {
		switch {
		case part.refs[j].Valid():
			p.parse(int(i), part.refs[j])
		case !p.owed[i]:
			p.absent.add(int(i), p.hashes[i])
		}
	}
	if keep {
		p.keepAll()
	}
	p.o.Stack.Release(ledger.Daemon, ledger.IO, valid(part.refs[:part.n]))
}

// valid moves the refs that are valid to the front.
func valid(refs []tier.Ref) []tier.Ref {
	return slices.DeleteFunc(refs, func(r tier.Ref) bool { return !r.Valid() })
}

// lookBelow looks for the names of a pass that are absent: they are not in DRAM, or
// on their way down.
func (p *names) lookBelow(ctx context.Context, keep bool) {
	part := &p.absent
	c := p.alone(part.hashes[:part.n])
	sure := p.o.Stack.Where(ctx, &c, part.at[:])
	for j, i := range part.which[:part.n] {
		switch at := part.at[j]; {
		case at.Has(tier.CPU), at == 0 && !sure:
			p.has[i] = p.Store.has(ctx, p.list[i], keep)
		case at != 0:
			if p.has[i] = true; keep {
				p.want(p.hashes[i])
			}
		}
	}
}

// keepAll shelters the values of rest that are held.
func (p *names) keepAll() {
	part := &p.fresh
	part.n = 0
	p.shelter.mu.Lock()
	for j, i := range p.rest.which[:p.rest.n] {
		if ref := p.rest.refs[j]; p.has[i] && ref.Valid() && p.fits(ref) {
			part.add(int(i), p.hashes[i])
		}
	}
	p.shelter.mu.Unlock()
	if part.n == 0 {
		return
	}
	c := p.alone(part.hashes[:part.n])
	p.o.Stack.HoldEach(ledger.Daemon, ledger.Lease, &c, part.refs[:])
	p.take(part.hashes[:part.n], part.refs[:part.n])
}

// DeleteAll is Delete of each of the names, in passes over DeleteNames of them, and
// returns how many had a value: a name that is there twice has none the second
// time. After an error, which is that of Delete, the names behind may be deleted
// or not.
func (s *Store) DeleteAll(ctx context.Context, list [][]byte) (n int, err error) {
	for part := range slices.Chunk(list, DeleteNames) {
		had, err := s.deletePart(ctx, part)
		if err != nil {
			return n, fmt.Errorf("delete: %w", err)
		}
		n += had
	}
	return n, nil
}

func (s *Store) deletePart(ctx context.Context, list [][]byte) (n int, err error) {
	p := s.borrow(list)
	defer p.give()
	locked := p.lock()
	defer p.unlock(locked)
	p.look(ctx, false)
	failed := p.deleteHashes(ctx)
	for i, h := range p.hashes[:len(list)] {
		var err error
		if failed != nil && !p.owed[i] { // which of them it is does not say
			_, err = s.o.Stack.Delete(ctx, []key.Key{{Space: s.space, Hash: h}})
		}
		if err != nil || s.debts.owes(h) {
			err = s.owe(h, err)
		}
		if err != nil {
			return n, err
		}
		if p.has[i] && !slices.Contains(p.hashes[:i], h) {
			n++
		}
	}
	return n, nil
}

// deleteHashes deletes the hashes of a pass that are not owed.
func (p *names) deleteHashes(ctx context.Context) error {
	ks := make([]key.Key, 0, DeleteNames)
	for i, h := range p.hashes[:len(p.list)] {
		if !p.owed[i] {
			ks = append(ks, key.Key{Space: p.space, Hash: h})
		}
	}
	if len(ks) == 0 {
		return nil
	}
	_, err := p.o.Stack.Delete(ctx, ks)
	return err
}

// stripes is a set of the locks of names.
type stripes [stripesOfNames / 64]uint64

// lock is Store.lock for all the names at once; unlock follows. Callers that hold
// several take them in order.
func (p *names) lock() (locked stripes) {
	for _, h := range p.hashes[:len(p.list)] {
		i := p.stripe(h)
		locked[i/64] |= 1 << (i % 64)
	}
	for i := range p.Store.names {
		if locked.has(i) {
			p.Store.names[i].Lock()
		}
	}
	return locked
}

func (p *names) unlock(locked stripes) {
	for i := range p.Store.names {
		if locked.has(i) {
			p.Store.names[i].Unlock()
		}
	}
}

func (l *stripes) has(i int) bool { return l[i/64]&(1<<(i%64)) != 0 }
