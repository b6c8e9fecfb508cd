package server

import (
	"sync"
	"time"

	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

// fill is one reservation. A slot is given up once: by commit, by abort, or
// by abandon when the client leaves or the fill has grown too old.
type fill struct {
	id      uint64
	session *session
	chain   key.Chain
	first   int // chunk of slot 0
	expiry  *time.Timer
	mu      struct {
		sync.Mutex
		slots []slot
		live  int  // slots granted and not yet given up
		aged  bool // given up because nobody ended it in time
	}
}

// slot is one chunk of a reservation.
type slot struct {
	status tier.GrantStatus
	ref    tier.Ref // valid while granted and not given up
	window int64    // where its bytes lie in the staging window; with staged puts
}

func (c *session) reserve(h wire.Header, body []byte) error {
	var req wire.ReserveRequest
	if err := req.Decode(body); err != nil {
		return err
	}
	if c.puts == wire.PutInline {
		return refuse(wire.StatusUnsupported, "reserve: this connection has neither a staging window nor a writable arena; ask for one in hello, or use put")
	}
	f := &fill{session: c}
	if err := c.chain(&f.chain, &req.Chain); err != nil {
		return err
	}
	from, to, err := span(&f.chain, req.First, req.Count)
	if err != nil {
		return err
	}
	sizes, err := c.sizes(req.Sizes, to-from)
	if err != nil {
		return err
	}
	if err := c.roomFor(len(c.mu.fills), "fills"); err != nil { // only the reader adds
		return err
	}
	f.id, f.first = c.server.ids.Add(1), from
	err = f.grant(sizes, req.Flags&wire.ReserveAllOrNothing != 0)
	reason, _ := reasonOf(err)
	if len(f.mu.slots) == 0 && err != nil {
		return err
	}
	reply := wire.ReserveReply{Reason: reason, Slots: f.describe()}
	if f.mu.live > 0 { // otherwise there is nothing to commit, and no fill
		reply.Fill = f.id
		f.expiry = time.AfterFunc(c.server.o.LeaseMaxAge, f.expire)
		c.mu.Lock()
		c.mu.fills[f.id] = f
		c.mu.Unlock()
	}
	c.reply(h, &reply)
	return nil
}

// sizes returns one size a chunk.
func (c *session) sizes(l wire.U32s, n int) ([]uint32, error) {
	if l.Len() != 1 && l.Len() != n {
		return nil, refuse(wire.StatusBadRequest, "%d sizes for %d chunks; give one for all, or one for each", l.Len(), n)
	}
	out := make([]uint32, n)
	limit := min(int64(arena.MaxPayload), c.server.o.Arena.Stats().CapacityBytes)
	for i := range out {
		if out[i] = l.At(min(i, l.Len()-1)); int64(out[i]) > limit {
			return nil, refuse(wire.StatusTooLarge, "chunk %d has %d bytes, the limit is %d", i, out[i], limit)
		}
	}
	return out, nil
}

// grant takes room for the longest leading run that fits, or for all.
func (f *fill) grant(sizes []uint32, all bool) error {
	c := f.session
	grants := make([]tier.Grant, len(sizes))
	n, err := c.server.o.Stack.Reserve(c.ctx, c.owner, &f.chain, f.first, sizes, grants)
	for i, g := range grants[:n] {
		s := slot{status: g.Status, ref: g.Ref}
		if g.Status == tier.Granted {
			off, ok := c.staging.alloc(sizes[i])
			if !ok {
				err = refuse(wire.StatusOverBudget, "reserve: the staging window is full; commit or abort something, or ask for a larger one in hello")
				abortGrants(c.server.o.Stack, grants[i:n])
				break
			}
			s.window = off
			f.mu.live++
		}
		f.mu.slots = append(f.mu.slots, s)
	}
	if err != nil && all {
		f.give(0, len(f.mu.slots))
		f.mu.slots = nil
	}
	return err
}

func abortGrants(s *tier.Stack, grants []tier.Grant) {
	for _, g := range grants {
		if g.Ref.Valid() {
			s.Abort([]tier.Ref{g.Ref})
		}
	}
}

// describe tells the client where to put what.
func (f *fill) describe() wire.Slots {
	slots := make(wire.Slots, 0, 16*len(f.mu.slots))
	for _, s := range f.mu.slots {
		w := wire.Slot{Grant: wire.Grant(s.status)} // the same numbers
		if s.status == tier.Granted {
			w.Length, w.Offset = uint32(s.ref.Block.Len()), uint64(s.window)
			if f.session.puts == wire.PutDirect {
				w.Offset = uint64(s.ref.Block.Offset())
			}
		}
		slots = slots.Add(w)
	}
	return slots
}

// slots finds the fill and the range of slots that a request names.
func (c *session) slots(body []byte) (*fill, int, int, error) {
	var req wire.FillRequest
	if err := req.Decode(body); err != nil {
		return nil, 0, 0, err
	}
	c.mu.Lock()
	f := c.mu.fills[req.Fill]
	c.mu.Unlock()
	if f == nil {
		return nil, 0, 0, refuse(wire.StatusUnknownFill, "fill %d is not live on this connection: all of it is committed or aborted, or never was", req.Fill)
	}
	if f.forgetIfRevoked() {
		return nil, 0, 0, refuse(wire.StatusRevoked, "fill %d was given up: it was neither committed nor aborted within %v; reserve again", req.Fill, c.server.o.LeaseMaxAge)
	}
	n := int64(len(f.mu.slots)) // never changes once f is in the table
	from, to := int64(req.First), int64(req.First)+int64(req.Count)
	if req.Count == 0 {
		to = n
	}
	if from >= n || to > n {
		return nil, 0, 0, refuse(wire.StatusNotReserved, "slots %d to %d of fill %d do not exist; it has %d", from, to, req.Fill, n)
	}
	return f, int(from), int(to), nil
}

func (c *session) commit(h wire.Header, body []byte) error {
	f, from, to, err := c.slots(body)
	if err != nil {
		return err
	}
	results, err := f.commit(from, to)
	f.forgetIfDone()
	if err != nil {
		return err
	}
	c.reply(h, &wire.StoreReply{Results: results})
	return nil
}

// commit makes slots visible, run by run.
func (f *fill) commit(from, to int) (wire.Results, error) {
	results := make(wire.Results, 0, 16*(to-from))
	taken := f.take(from, to)
	for i := 0; i < len(taken); {
		if !taken[i].ref.Valid() {
			results = results.Add(wire.Stored{Result: wire.ResultNotGranted})
			i++
			continue
		}
		run := i
		var refs []tier.Ref
		for ; run < len(taken) && taken[run].ref.Valid(); run++ {
			s := taken[run]
			sum := f.seal(s)
			refs = append(refs, s.ref)
			results = results.Add(wire.Stored{Result: wire.ResultStored, Sum: sum})
		}
		f.session.server.count.stored(refs)
		if err := f.session.server.o.Stack.Commit(&f.chain, f.first+from+i, refs); err != nil {
			f.giveBack(taken[run:])
			return nil, err
		}
		i = run
	}
	return results, nil
}

// seal makes a slot's bytes final and returns their checksum. What was staged
// is copied first and hashed where it lies then: the client can still write
// to the window, not to the arena.
func (f *fill) seal(s slot) uint64 {
	c := f.session
	if c.staging == nil {
		return s.ref.Block.Seal()
	}
	sum := s.ref.Block.Write(c.staging.bytes(s.window, s.ref.Block.Len()))
	s.ref.Block.SealSum(sum)
	c.staging.free(s.window, s.ref.Block.Len())
	return sum
}

// take takes the live slots of a range over; the others are zero.
func (f *fill) take(from, to int) []slot {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := make([]slot, to-from)
	for i := range out {
		if s := &f.mu.slots[from+i]; s.ref.Valid() {
			out[i] = *s
			s.ref = tier.Ref{}
			f.mu.live--
		}
	}
	return out
}

func (c *session) abort(h wire.Header, body []byte) error {
	f, from, to, err := c.slots(body)
	if err != nil {
		return err
	}
	f.give(from, to)
	f.forgetIfDone()
	c.reply(h, wire.EmptyReply{})
	return nil
}

// give gives up a range of slots.
func (f *fill) give(from, to int) { f.giveBack(f.take(from, to)) }

func (f *fill) giveBack(slots []slot) {
	for _, s := range slots {
		if s.ref.Valid() {
			f.session.staging.free(s.window, s.ref.Block.Len())
			f.session.giveUp(s.ref)
		}
	}
}

// giveUp ends one fill. A block that the client can write to is kept out of
// use, at the client's expense, until its process has ended.
func (c *session) giveUp(r tier.Ref) {
	stack := c.server.o.Stack
	if c.puts != wire.PutDirect {
		stack.Abort([]tier.Ref{r})
		return
	}
	b := r.Block.Retain()
	stack.Abort([]tier.Ref{r})
	n := int64(b.Len())
	charged := stack.Charge(c.owner, ledger.Lease, n) == nil
	c.join()
	c.server.o.Quarantine.AddFunc(c.peer, func() {
		if charged {
			stack.Uncharge(c.owner, ledger.Lease, n)
		}
		c.leave()
	}, b)
}

// abandon gives up whatever is left, when the connection has ended.
func (f *fill) abandon() {
	f.expiry.Stop()
	f.give(0, len(f.mu.slots))
}

// expire gives up a fill that was neither committed nor aborted in time. It
// stays in the table until the client has been told.
func (f *fill) expire() {
	f.mu.Lock()
	f.mu.aged = f.mu.live > 0
	aged := f.mu.aged
	f.mu.Unlock()
	if !aged {
		return
	}
	f.give(0, len(f.mu.slots))
	f.session.server.count.revoked.Add(1)
	f.session.log.Warn().Uint64("fill", f.id).Msg("fill given up: it was neither committed nor aborted in time")
}

// forgetIfRevoked drops a fill that expired, and reports whether it did.
func (f *fill) forgetIfRevoked() bool {
	f.mu.Lock()
	aged := f.mu.aged
	f.mu.Unlock()
	if aged {
		f.session.forgetFill(f.id)
	}
	return aged
}

// forgetIfDone drops a fill of which nothing is left.
func (f *fill) forgetIfDone() {
	f.mu.Lock()
	live := f.mu.live
	f.mu.Unlock()
	if live > 0 {
		return
	}
	f.expiry.Stop()
	f.session.forgetFill(f.id)
}

func (c *session) forgetFill(id uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.mu.fills, id)
}
