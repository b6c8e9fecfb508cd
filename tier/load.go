package tier

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/fair"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/key"
)

// loaded is a chunk that just came up, held by the daemon until everybody
// who waited for it has taken their own hold.
type loaded struct {
	ref  Ref
	from Place
}

// LoadError says which tier failed to bring a chunk up.
type LoadError struct {
	Place Place
	Err   error
}

func (e *LoadError) Error() string { return fmt.Sprintf("load from %s: %v", e.Place, e.Err) }

// Unwrap returns what the tier said.
func (e *LoadError) Unwrap() error { return e.Err }

// By is for whom a chunk is brought up. Loads of a tier take turns over
// clients, by bytes, and over the jobs of each client.
type By struct {
	Owner ledger.Owner // whose lease it becomes, and the client
	Job   uint64       // of that client
	Idle  bool         // in no hurry: only where nobody else waits
}

func (by By) turn() fair.By {
	return fair.By{Client: uint64(by.Owner), Job: by.Job, Idle: by.Idle}
}

// Load brings chunk i of c up to DRAM from the nearest tier of the search
// range that has it, and leases it to o. However many want it, it is fetched
// once. It ends with ctx; a fetch that others wait for goes on.
func (s *Stack) Load(ctx context.Context, o ledger.Owner, c *key.Chain, i int, search Set) (Ref, Place, error) {
	return s.LoadBy(ctx, By{Owner: o}, c, i, search)
}

// LoadBy is Load for one of several jobs of a client.
func (s *Stack) LoadBy(ctx context.Context, by By, c *key.Chain, i int, search Set) (Ref, Place, error) {
	o := by.Owner
	var refs [1]Ref
	if n, err := s.Hold(o, ledger.Lease, c, i, i+1, refs[:]); n == 1 || err != nil {
		return refs[0], CPU, refusedLoad(err)
	}
	l, err := s.up(ctx, by, c, i, search)
	if err != nil {
		return Ref{}, 0, err
	}
	defer s.discardLoaded(l)
	n, err := s.Hold(o, ledger.Lease, c, i, i+1, refs[:])
	if n == 0 && err == nil {
		err = ErrNotFound // deleted this very moment
	}
	return refs[0], l.from, refusedLoad(err)
}

// up brings chunk i of c up, held by the daemon.
func (s *Stack) up(ctx context.Context, by By, c *key.Chain, i int, search Set) (loaded, error) {
	rec := recordAt(c, i, 0)
	fair.Leave(ctx)
	if !by.Idle {
		defer s.hurry.want(rec.Key, by.turn())()
	}
	l, _, err := s.flight.Do(ctx, rec.Key, func(ctx context.Context) (loaded, error) {
		return s.bringUp(ctx, by, rec, search)
	})
	return l, err
}

// refusedLoad says of what Hold refused what was to be done.
func refusedLoad(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("load: %w", Refusal(err))
}

// bringUp fetches one chunk from below and publishes it. A tier that fails
// passes the turn to the next; the last error is told.
func (s *Stack) bringUp(ctx context.Context, by By, r Record, search Set) (loaded, error) {
	if l, ok := s.holdLoaded(r.Key, CPU); ok {
		return l, nil // somebody else was faster
	}
	err := fmt.Errorf("load: %w", ErrNotFound)
	s.mu.Lock()
	at, _ := s.mu.tree.Get(r.Key.Space, r.Key.Hash)
	s.mu.Unlock()
	search &= s.reach(r.Key.Space)
	for p := Disk; p < Places; p++ {
		if s.tiers[p] == nil || !search.Has(p) || !Set(at).Has(p) {
			continue
		}
		var l loaded
		if l, err = s.fetch(ctx, by, r, p); err == nil {
			return l, nil
		}
		if errors.Is(err, errTaken) {
			if l, ok := s.holdLoaded(r.Key, CPU); ok {
				return l, nil // whoever had it was done in time
			}
			return loaded{}, err // no tier's fault, and none would fare better
		}
		if errors.Is(err, errDeleted) {
			continue // whoever deletes it tells the index
		}
		if errors.Is(err, ErrNotFound) || errors.Is(err, ErrCorrupt) {
			s.forget(p, r.Key)
		}
		s.count.loadFailed[p].Add(1)
	}
	return loaded{}, err
}

// fetch brings one chunk up from tier p when its turn comes.
func (s *Stack) fetch(ctx context.Context, by By, r Record, p Place) (loaded, error) {
	room := loadRoom{stack: s, rec: r, by: by.Owner}
	if err := s.arrive(ctx, by, p, &room); err != nil {
		room.abort()
		return loaded{}, &LoadError{Place: p, Err: err}
	}
	r.Size = uint32(room.ref.Block.Len())
	s.settleRecords(CPU, []Record{r})
	for _, w := range s.writers {
		if w.place < p {
			w.promoted(r)
		}
	}
	s.count.loads[p].Add(1)
	s.count.loadBytes[p].Add(uint64(r.Size))
	s.filled()
	return loaded{ref: room.ref, from: p}, nil
}

// arrive gets a chunk and publishes it, held by the daemon, unless it is
// deleted on its way.
func (s *Stack) arrive(ctx context.Context, by By, p Place, room *loadRoom) error {
	ctx, a, err := s.coming.begin(ctx, room.rec.Key, p)
	if err != nil {
		return err
	}
	defer s.coming.end(a)
	err = s.get(ctx, by, p, room)
	if gone := s.coming.arrive(a, func() {
		if err == nil {
			s.hot.Publish([]Ref{room.ref}, false, true)
		}
	}); gone != nil {
		return gone
	}
	return err
}

// get reads a chunk of tier p into room when the turn of whoever asks comes.
func (s *Stack) get(ctx context.Context, by By, p Place, room *loadRoom) error {
	pass, err := s.enter(ctx, by, room.rec.Key, p)
	if err != nil {
		return err
	}
	had := int64(0)
	done := s.speed[p].begin()
	defer func() {
		done(had)
		pass.Leave(had)
	}()
	b, err := s.tiers[p].Get(ctx, room.rec.Key, room)
	if err != nil {
		return err
	}
	had = int64(b.Len())
	s.usual[p].Store(had)
	b.Release() // room.ref has its own reference
	return nil
}

// forget clears the bit of a tier that turned out not to have ks, a few at most:
// the index's lock is held once.
func (s *Stack) forget(p Place, ks ...key.Key) {
	if _, ok := s.tiers[p].(Resident); ok {
		s.settle(p, ks...)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range ks {
		s.mark(k, p, false)
	}
}

// holdLoaded holds a resident chunk for the daemon.
func (s *Stack) holdLoaded(k key.Key, from Place) (loaded, bool) {
	var refs [1]Ref
	ks := [1]key.Key{k}
	n, _ := s.hot.Hold(ledger.Daemon, ledger.IO, ks[:], refs[:])
	if n == 0 && s.readmit(k) {
		n, _ = s.hot.Hold(ledger.Daemon, ledger.IO, ks[:], refs[:])
	}
	return loaded{ref: refs[0], from: from}, n == 1
}

func (s *Stack) cloneLoaded(l loaded) loaded {
	s.hot.Ledger().HoldID(ledger.Daemon, ledger.IO, l.ref.ID)
	return loaded{ref: Ref{ID: l.ref.ID, Block: l.ref.Block.Retain()}, from: l.from}
}

func (s *Stack) discardLoaded(l loaded) {
	s.hot.Release(ledger.Daemon, ledger.IO, []Ref{l.ref})
}

// roomWait bounds how long a chunk that comes up waits for memory that others
// hold. Recomputing it has long been faster then.
const roomWait = 10 * time.Second

// errTaken is the answer to a load of a chunk that came to DRAM another way
// meanwhile, or is being filled by a client: not there yet, then, although a
// tier has it.
var errTaken = fmt.Errorf("a client is filling this chunk: %w", ErrNotFound)

var errNoRoom = fmt.Errorf("everything was held for %v", roomWait)

// loadRoom is the Allocator of one load: the block it gives out is a fill of
// the hot tier, so that what comes up is accounted from the start.
type loadRoom struct {
	stack *Stack
	rec   Record
	by    ledger.Owner // who asked first
	ref   Ref
}

// Alloc implements Allocator. A tier that asks again gets a new fill.
func (l *loadRoom) Alloc(ctx context.Context, n int) (arena.Block, error) {
	l.abort()
	l.rec.Size = uint32(n)
	ctx, cancel := context.WithTimeoutCause(ctx, roomWait, errNoRoom)
	defer cancel()
	ref, st, err := l.stack.hot.Reserve(ctx, Fill{
		Record: l.rec, Owner: ledger.Daemon, Class: ledger.Load, Wait: true, Drop: l.stack.drop,
		For: l.by, Writing: l.stack.writing,
	})
	if err != nil {
		return arena.Block{}, err
	}
	if st != ledger.Absent {
		return arena.Block{}, errTaken
	}
	l.ref = ref
	return ref.Block.Retain(), nil
}

func (l *loadRoom) abort() {
	if l.ref.Valid() {
		l.stack.hot.Abort([]Ref{l.ref})
		l.ref = Ref{}
	}
}

// dropCorrupt forgets a chunk whose bytes in DRAM are wrong. Readers keep the
// block until they let go.
func (s *Stack) dropCorrupt(ctx context.Context, k key.Key) {
	s.count.corrupt.Add(1)
	if err := s.hot.Delete(ctx, []key.Key{k}); err != nil {
		s.log.Error().Err(err).Msg("a chunk with a wrong checksum could not be dropped from DRAM")
	}
	s.departing.drop(k)
	s.settle(CPU, k)
}
