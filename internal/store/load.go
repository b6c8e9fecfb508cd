package store

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/explain"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/internal/stale"
	"github.com/kvstored/kvstored/internal/writeback"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

// Loader promotes chunks from the tiers below to DRAM, each once however many
// requests want it. A load has one verb a level:
//
//	Load         leases the chunk where DRAM has it; or promotes it, and leases it then
//	promote      joins the promotion of the chunk that is under way, or begins one:
//	             tries the tiers that have it, nearest first
//	promoteFrom  has one tier read it, and publishes it unless it was deleted meanwhile
//	read         waits for the turn of the request, and calls Get: the tier
//	reserve      has a block (Alloc), reads the bytes and verifies them
//
// From reserve on the chunk is held once, as a fill and, from the moment it is published, by the
// promotion: however many requests wait for it, the promotion lets go when each has its own lease.
// Without that the chunk could be evicted between the two, for a lease may be refused.
type Loader struct {
	levels     *levels
	index      *tierIndex
	leases     *Leases
	writers    *writeback.Writers
	promotions *promotions
	ages       *stale.Book
	distrusted *stale.Distrusted
	rivals     *explain.Rivals

	flight tier.Flights[key.Key, *promoted]
	boost  boost
	loaded func(from tier.Place, took time.Duration) // nil: not wanted

	roomWait time.Duration
}

// Wait returns when no load is under way any more. Those that no request waits for end soon. Call
// it when there is no other call of Load any more and before the tiers are closed.
func (l *Loader) Wait() { l.flight.Wait() }

// LoadRoom is how many bytes of DRAM promotions may take at a time, until they
// are published.
func (l *Loader) LoadRoom() int64 {
	if limit := ledger.LimitOf(l.levels.hot.Ledger(), ledger.Load); limit > 0 {
		return min(limit, l.levels.hot.Stats().CapacityBytes)
	}
	return l.levels.hot.Stats().CapacityBytes
}

// promoted is a chunk that was just promoted. The daemon holds it, once, until
// each request that waited for it has its own lease.
type promoted struct {
	ref   tier.Ref
	from  tier.Place
	users atomic.Int32 // requests that have not let go
}

func newPromoted(ref tier.Ref, from tier.Place) *promoted {
	p := &promoted{ref: ref, from: from}
	p.users.Store(1)
	return p
}

// share is p for one request more.
func (p *promoted) share() *promoted {
	p.users.Add(1)
	return p
}

// release ends the share of one request, and with the last one the hold.
func (l *Loader) release(p *promoted) {
	if p.users.Add(-1) == 0 {
		l.writers.Unhold(p.ref)
	}
}

// LoadError says which tier failed to promote a chunk.
type LoadError struct {
	Place tier.Place
	Err   error
}

func (e *LoadError) Error() string { return fmt.Sprintf("load from %s: %v", e.Place, e.Err) }

// Unwrap returns what the tier said.
func (e *LoadError) Unwrap() error { return e.Err }

// Requester is for whom a chunk is promoted. Loads of a tier take turns over clients,
// by bytes, and over the jobs of each client.
type Requester struct {
	Owner ledger.Owner // whose lease it becomes, and the client
	Job   uint64       // of that client
	Idle  bool         // only where no other load waits
}

func (by Requester) turn() tier.By {
	return tier.By{Client: uint64(by.Owner), Job: by.Job, Idle: by.Idle}
}

// Load promotes chunk i of c to DRAM from the nearest tier of the search range
// that has it, and leases it to its owner. However many requests want it, it is read
// once. It ends with ctx; a read that others wait for goes on.
func (l *Loader) Load(ctx context.Context, by Requester, c *key.Chain, i int, search tier.Set) (tier.Ref, tier.Place, error) {
	var refs [1]tier.Ref
	if n, err := l.leases.Hold(by.Owner, ledger.Lease, c, i, i+1, refs[:]); n == 1 || err != nil {
		return refs[0], tier.CPU, refusedLoad(err)
	}
	start := time.Now()
	p, err := l.promote(ctx, by, tier.RecordAt(c, i, 0), search)
	if err != nil {
		return tier.Ref{}, 0, err
	}
	defer l.release(p)
	n, err := l.leases.Hold(by.Owner, ledger.Lease, c, i, i+1, refs[:])
	if n == 0 && err == nil {
		err = tier.ErrNotFound // deleted this very moment
	}
	if n == 1 && l.loaded != nil {
		l.loaded(p.from, time.Since(start))
	}
	return refs[0], p.from, refusedLoad(err)
}

// Warm promotes chunk i of c as idle work, which no other load waits behind, and
// leaves it without a lease. It returns how many bytes were promoted, and from which
// tier: none, from DRAM, if the chunk is there already. It ends with ctx.
func (l *Loader) Warm(ctx context.Context, by Requester, c *key.Chain, i int, search tier.Set) (int64, tier.Place, error) {
	by.Idle = true
	p, err := l.promote(ctx, by, tier.RecordAt(c, i, 0), search)
	if err != nil {
		return 0, 0, err
	}
	defer l.release(p)
	if p.from == tier.CPU {
		return 0, tier.CPU, nil
	}
	return int64(p.ref.Block.Len()), p.from, nil
}

// promote promotes a chunk for a request, or joins the promotion under way. The
// caller releases the result.
func (l *Loader) promote(ctx context.Context, by Requester, r tier.Record, search tier.Set) (*promoted, error) {
	if !by.Idle {
		defer l.boost.want(r.Key, by.turn())()
	}
	p, err := l.flight.Do(ctx, r.Key, func(ctx context.Context) (*promoted, error) {
		return l.promoteNearest(ctx, by, r, search)
	})
	return p, err
}

// refusedLoad gives a refusal of Hold the name of the operation.
func refusedLoad(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("load: %w", tier.Refusal(err))
}

// errOver is the answer to a load of a chunk of which the time has come.
var errOver = fmt.Errorf("it is older than it may become: %w", tier.ErrNotFound)

// promoteNearest promotes a chunk from the nearest tier that gives it. A tier that
// fails passes the turn to the next; the last error is told.
func (l *Loader) promoteNearest(ctx context.Context, by Requester, r tier.Record, search tier.Set) (*promoted, error) {
	if ref, ok := l.writers.Hold(r.Key); ok {
		return newPromoted(ref, tier.CPU), nil // another load was faster
	}
	err := fmt.Errorf("load: %w", tier.ErrNotFound)
	switch {
	case l.distrusted.Has(r.Key.Space):
		return nil, err
	case l.ages.Expired(r.Key):
		return nil, fmt.Errorf("load: %w", errOver)
	}
	search &= l.writers.Reach(r.Key.Space) & l.index.Where(r.Key)
	for _, from := range l.levels.below {
		if !search.Has(from.Place) {
			continue
		}
		var ref tier.Ref
		if ref, err = l.promoteFrom(ctx, by, r, from); err == nil {
			return newPromoted(ref, from.Place), nil
		}
		if errors.Is(err, errTaken) {
			if ref, ok := l.writers.Hold(r.Key); ok {
				return newPromoted(ref, tier.CPU), nil // the client that filled it was done in time
			}
			return nil, err // no tier's fault, and none would fare better
		}
		if errors.Is(err, errDeleted) || errors.Is(err, errOver) {
			continue // the deletion tells the index
		}
		if errors.Is(err, tier.ErrNotFound) || errors.Is(err, tier.ErrCorrupt) {
			l.index.Clear(from.Place, lossOf(err), r.Key)
		}
		from.failed.Add(1)
	}
	return nil, err
}

// lossOf is why a tier that failed to read a chunk has it no more.
func lossOf(err error) explain.Reason {
	if errors.Is(err, tier.ErrCorrupt) {
		return explain.Corrupt
	}
	return explain.Gap
}

// promoteFrom reads a chunk of one tier and publishes it, held by the daemon,
// unless it is deleted on its way.
func (l *Loader) promoteFrom(ctx context.Context, by Requester, r tier.Record, from *level) (tier.Ref, error) {
	room := loadRoom{loader: l, rec: r, by: by.Owner}
	ctx, p, err := l.promotions.begin(ctx, r.Key, from.Place)
	if err == nil {
		if err = l.read(ctx, by, from, &room); err == nil && l.ages.Expired(r.Key) {
			err = errOver // while it was read, or the tier has only told now
		}
		err = l.promotions.publish(p, err, func() { l.levels.hot.Publish([]tier.Ref{room.ref}, false, true) })
		l.promotions.end(p)
	}
	if err != nil {
		room.abort()
		return tier.Ref{}, &LoadError{Place: from.Place, Err: err}
	}
	r.Size = uint32(room.ref.Block.Len())
	l.index.Insert(tier.CPU, []tier.Record{r})
	l.rivals.Came(uint8(tier.CPU), r.Key.Space, uint64(r.Size))
	for _, nearer := range l.levels.below[:from.rank-1] {
		nearer.writer.Promoted(r)
	}
	from.loads.Add(r.Size)
	l.writers.Came(arena.RoundUp(int64(r.Size)))
	l.writers.Filled()
	return room.ref, nil
}

// read reads a chunk of a tier into room when the turn of the request comes. The tier verifies it.
func (l *Loader) read(ctx context.Context, by Requester, from *level, room *loadRoom) error {
	pass, err := l.boost.enter(ctx, by, room.rec.Key, from)
	if err != nil {
		return err
	}
	got := int64(0)
	done := from.speed.begin()
	defer func() {
		done(got)
		pass.Leave(got)
	}()
	b, err := from.Tier.Tier.Get(ctx, room.rec.Key, room)
	if err != nil {
		return err
	}
	got = int64(b.Len())
	from.usual.Store(got)
	b.Release() // room.ref has its own reference
	return nil
}

// defaultRoomWait is Options.RoomWait: recomputing the chunk has long been faster then.
const defaultRoomWait = 10 * time.Second

// errTaken is the answer to a load of a chunk that came to DRAM another way
// meanwhile, or is being filled by a client: not there yet, then, although a
// tier has it.
var errTaken = fmt.Errorf("a client is filling this chunk: %w", tier.ErrNotFound)

var errNoRoom = errors.New("everything was held for too long")

// loadRoom is the Allocator of one load: the block it gives out is a fill of
// the hot tier, so that a promotion is accounted from the start.
type loadRoom struct {
	loader *Loader
	rec    tier.Record
	by     ledger.Owner // of the first request
	ref    tier.Ref
}

// Alloc implements tier.Allocator. A tier that asks again gets a new fill.
func (r *loadRoom) Alloc(ctx context.Context, n int) (arena.Block, error) {
	r.abort()
	r.rec.Size = uint32(n)
	ctx, cancel := context.WithTimeoutCause(ctx, r.loader.roomWait, errNoRoom)
	defer cancel()
	ref, st, err := r.loader.levels.hot.Reserve(ctx, tier.Fill{
		Record: r.rec, Owner: ledger.Daemon, Class: ledger.Load, Patience: tier.Wait, Drop: r.loader.writers.Demote,
		For: r.by, Writing: r.loader.writers.WriteDeferred,
	})
	if err != nil {
		return arena.Block{}, err
	}
	if st != ledger.Absent {
		return arena.Block{}, errTaken
	}
	r.ref = ref
	return ref.Block.Retain(), nil
}

func (r *loadRoom) abort() {
	if r.ref.Valid() {
		r.loader.levels.hot.Abort([]tier.Ref{r.ref})
		r.ref = tier.Ref{}
	}
}

// fetch promotes a chunk from one tier for a writer, if need be when there is room again.
func (l *Loader) fetch(ctx context.Context, r tier.Record, from tier.Place) (writeback.Fetched, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, l.roomWait, errNoRoom)
	defer cancel()
	for {
		released := l.levels.hot.Ledger().Released() // taken before the try, to miss nothing
		p, err := l.promote(ctx, Requester{Owner: ledger.Daemon, Idle: true}, r, tier.Of(from))
		switch {
		case err == nil:
			return writeback.Fetched{Ref: p.ref, From: p.from, Release: func() { l.release(p) }}, nil
		case !errors.Is(err, tier.ErrNoSpace):
			return writeback.Fetched{}, err
		}
		select {
		case <-released:
		case <-ctx.Done():
			return writeback.Fetched{}, err
		}
	}
}
