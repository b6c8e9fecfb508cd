package client

import (
	"context"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/key"
)

// ReserveOptions say which chunks to store. Size or Sizes is required.
type ReserveOptions struct {
	First int      // first chunk of the prompt
	Count int      // chunks; 0 means all that follow First
	Size  int      // payload bytes of every chunk, or
	Sizes []uint32 // of each
	// Groups are those of a hybrid model, the prompt's own space first, which is full;
	// see LookupOptions. Then Sizes has a size for each group, or one for each chunk of
	// the first group, then of the next: of those chunks that end where First and
	// Count say. A chunk of 0 bytes is not offered; each other one is a slot, in that
	// order. A window or a state that no prefix needs that is worth having is NotWanted. It takes
	// shared memory.
	Groups []Group
	// Wait is how long the answer may wait while there is no room for the
	// first chunk, or for all where DRAM's victims must be written first, and while
	// the tiers below are far behind. 0 answers at once,
	// with fewer slots; chunks stored then may be evicted before they are
	// written below.
	Wait time.Duration
	// MaxAge is how long the chunks may stay in any tier, in whole seconds from their
	// Commit; 0 leaves it to the daemon. Chunks that are there already keep their own.
	MaxAge time.Duration
	// Sums are checksums (XXH3-64) of the payloads of some slots, by slot, at
	// most 4,096. The daemon compares them with the stored payloads: see
	// Fill.Differ. Not without shared memory.
	Sums map[int]uint64
}

// Fill is room for chunks to be stored. Slot i of it is chunk First+i of the
// prompt, or with Groups the chunk of number i that was offered. Fill the granted slots and Commit, or Abort. A Fill whose slots are
// all committed or aborted is over.
//
// Without shared memory a Fill lends ordinary memory and Commit sends it; then
// whether there is room shows at Commit only.
type Fill struct {
	c      *Client
	id     uint64 // 0: nothing was granted, so that the daemon keeps no fill
	prompt Prompt
	first  int
	maxAge uint32 // seconds, of what is lent
	reason Reason
	slots  []wire.Slot
	differ []int

	// inline only
	mu struct {
		sync.Mutex
		local [][]byte // lent so far
		over  []bool   // committed or aborted
	}
}

// Reserve asks for room. The Fill covers the longest leading run that fits;
// Reason says why it is shorter than the run asked for.
func (c *Client) Reserve(ctx context.Context, p Prompt, o ReserveOptions) (*Fill, error) {
	f := &Fill{c: c, prompt: p, first: o.First}
	if err := f.reserve(ctx, o, false); err != nil {
		return nil, err
	}
	return f, nil
}

// reserve asks for the room of f. If it leads, what waits for the next request goes
// out behind it, so that the daemon answers first and works on that while the slots
// are filled.
func (f *Fill) reserve(ctx context.Context, o ReserveOptions, leads bool) error {
	c := f.c
	sizes, err := c.sizes(&o)
	if err != nil {
		return err
	}
	if c.hello.Puts == wire.PutInline {
		if len(o.Groups) > 0 {
			return refuse("reserve", ErrUnsupported, "%d groups take shared memory; store each in its own space", len(o.Groups))
		}
		return f.lend(ctx, o, sizes)
	}
	req := wire.ReserveRequest{
		Groups: groupsOf(o.Groups), Grain: f.prompt.grain(), First: uint32(o.First), Count: uint32(o.Count), Sizes: wire.ViewU32s(sizes),
		Deadline: after(o.Wait), MaxAge: seconds(o.MaxAge),
	}
	for slot, sum := range o.Sums {
		req.Sums = req.Sums.Add(wire.Sum{Slot: uint32(slot), Sum: sum})
	}
	undo := func(body []byte) error {
		var m wire.ReserveReply
		err := m.Decode(body)
		if err == nil && m.Fill != 0 { // something was granted
			c.link.giveBack(wire.OpAbort, &wire.FillRequest{Fill: m.Fill})
		}
		return err
	}
	if req.Chain, err = c.chain(wire.OpReserve, &f.prompt); err != nil {
		return err
	}
	return c.link.exchange(ctx, &message{op: wire.OpReserve, leads: leads, head: req.Append, take: f.begin, undo: undo})
}

// seconds is the whole seconds of an age that sizes has checked.
func seconds(d time.Duration) uint32 { return uint32(d / time.Second) }

// sizes checks what cannot be said on the wire.
func (c *Client) sizes(o *ReserveOptions) ([]uint32, error) {
	if o.First < 0 || o.Count < 0 {
		return nil, refuse("reserve", ErrBadRequest, "first %d, count %d: use numbers from 0", o.First, o.Count)
	}
	if o.MaxAge != 0 && (o.MaxAge < time.Second || o.MaxAge/time.Second > math.MaxUint32) {
		return nil, refuse("reserve", ErrBadRequest, "a max age of %v: use 1 s to 136 years, or 0 for none", o.MaxAge)
	}
	if len(o.Sizes) > 0 {
		return o.Sizes, nil
	}
	if o.Size < 1 || int64(o.Size) > int64(c.hello.MaxPayload) {
		return nil, refuse("reserve", ErrTooLarge, "payloads of %d bytes: use 1 to %d", o.Size, c.hello.MaxPayload)
	}
	return slices.Repeat([]uint32{uint32(o.Size)}, max(1, len(o.Groups))), nil
}

func (f *Fill) begin(body []byte) error {
	var m wire.ReserveReply
	if err := m.Decode(body); err != nil {
		return err
	}
	f.id, f.reason = m.Fill, m.Code
	f.slots = make([]wire.Slot, m.Slots.Len())
	size := f.c.hello.StagingBytes
	for i := range f.slots {
		s := m.Slots.At(i)
		if s.Code == Granted && (s.Offset > size || uint64(s.Length) > size-s.Offset) {
			return broken("fill %d: slot %d lies outside the memory", f.id, i)
		}
		f.slots[i] = s
	}
	for i := range m.Differ.Len() {
		f.differ = append(f.differ, int(m.Differ.At(i)))
	}
	return nil
}

// Differ is the slots that exist with other bytes than those whose sums were
// given to Reserve. The bytes that are there stay.
func (f *Fill) Differ() []int { return f.differ }

// Length is the payload bytes of slot i: as asked for, or where it exists those
// that are there, 0 if the daemon does not know them without reading.
func (f *Fill) Length(i int) int { return int(f.slots[i].Length) }

// Prompt is the prompt of the fill, by reference where the daemon knows it. It
// is good until the fill is over.
func (f *Fill) Prompt() Prompt {
	if f.c.hello.Puts == wire.PutInline || f.id == 0 {
		return f.prompt
	}
	return Prompt{form: wire.FormRef, ref: f.id}
}

// Len is the number of slots.
func (f *Fill) Len() int { return len(f.slots) }

// Reason says why there are fewer slots than chunks asked for; Complete if
// there are not.
func (f *Fill) Reason() Reason { return f.reason }

// Status says what to do about slot i.
func (f *Fill) Status(i int) Grant { return f.slots[i].Code }

// Bytes is the memory of slot i, to be written before Commit. It is nil unless
// the slot was granted. After Commit or Abort the daemon may use it for another
// chunk.
func (f *Fill) Bytes(i int) []byte {
	s := f.slots[i]
	if s.Code != Granted {
		return nil
	}
	if f.c.hello.Puts == wire.PutInline {
		return f.lent(i)
	}
	f.c.maps.mu.RLock()
	defer f.c.maps.mu.RUnlock()
	return view(f.c.maps.mu.staging, s.Offset, s.Length)
}

// Write copies a payload into slot i and returns how many bytes it has copied:
// the lesser of both lengths, or 0 unless the slot was granted. It is faster than
// copying into Bytes: what it writes stays in the caches until the daemon reads it,
// or goes past them where daemon and client share none.
func (f *Fill) Write(i int, payload []byte) int {
	return CopyTo(f.Bytes(i), payload)
}

// Commit makes all slots visible that were granted and not committed or
// aborted before. It returns a result for every slot.
func (f *Fill) Commit(ctx context.Context) ([]Stored, error) {
	return f.CommitRange(ctx, 0, len(f.slots), nil)
}

// CommitRange is Commit for n slots from first. It appends the results to out.
// Commits of several ranges may run at the same time.
// After ErrRevoked nothing of the fill can be committed: call Abort once no goroutine
// writes to its slots any more, or they keep their part of the staging window.
func (f *Fill) CommitRange(ctx context.Context, first, n int, out []Stored) ([]Stored, error) {
	if err := ctx.Err(); err != nil {
		return out, err
	}
	results, err := f.commitSoon(ctx, first, n).Wait(ctx)
	return append(out, results...), err
}

// Abort gives back every slot that was not committed.
func (f *Fill) Abort(ctx context.Context) error { return f.AbortRange(ctx, 0, len(f.slots)) }

// AbortRange is Abort for n slots from first.
func (f *Fill) AbortRange(ctx context.Context, first, n int) error {
	if err := f.check("abort", first, n); err != nil {
		return err
	}
	if f.c.hello.Puts == wire.PutInline {
		f.drop(first, n)
		return nil
	}
	if f.id == 0 || n == 0 { // nothing was granted; on the wire 0 means all
		return nil
	}
	req := wire.FillRequest{Fill: f.id, First: uint32(first), Count: uint32(n)}
	return f.c.link.do(ctx, wire.OpAbort, &req, wire.EmptyReply{}.Decode, nil)
}

func (f *Fill) check(op string, first, n int) error {
	if first < 0 || n < 0 || first > len(f.slots) || n > len(f.slots)-first {
		return refuse(op, ErrBadRequest, "slots %d to %d: the fill has %d", first, first+n, len(f.slots))
	}
	return nil
}

// takeResults appends exactly n results to out.
func takeResults(out *[]Stored, n int) func([]byte) error {
	return func(body []byte) error {
		var m wire.StoreReply
		if err := m.Decode(body); err != nil {
			return err
		}
		if m.Results.Len() != n {
			return broken("%d results for %d chunks", m.Results.Len(), n)
		}
		for i := range n {
			*out = append(*out, m.Results.At(i))
		}
		return nil
	}
}

// Commit is a commit under way. Its methods are for one goroutine at a time.
type Commit struct {
	fill    *Fill
	slot    int   // the first one
	call    *call // nil if there is nothing to wait for
	results []Stored
	err     error
}

// StartCommit is CommitRange without waiting: while the daemon takes the slots
// over, the caller can fill others. The request is on its way when it returns.
func (f *Fill) StartCommit(ctx context.Context, first, n int) *Commit {
	c := f.commitSoon(ctx, first, n)
	if c.call != nil {
		c.err = f.c.link.send(ctx, 0, nil)
	}
	return c
}

// commitSoon is StartCommit, but the request goes out with the next one on this
// connection, or with Wait.
func (f *Fill) commitSoon(ctx context.Context, first, n int) *Commit {
	c := &Commit{fill: f, slot: first}
	switch c.err = f.check("commit", first, n); {
	case c.err != nil || n == 0:
	case f.c.hello.Puts == wire.PutInline:
		c.results, c.err = f.send(ctx, first, n, nil)
	case f.id == 0: // nothing was granted
		c.results = slices.Repeat([]Stored{{Code: ResultNotGranted}}, n)
	default:
		req := wire.FillRequest{Fill: f.id, First: uint32(first), Count: uint32(n)}
		c.call = f.c.link.later(wire.OpCommit, &req, takeResults(&c.results, n))
	}
	return c
}

// Wait returns what CommitRange does, again and again. Where ctx ends before, the commit
// goes on, and a later Wait returns what became of it.
func (c *Commit) Wait(ctx context.Context) ([]Stored, error) {
	if c.call != nil {
		done, err := c.fill.c.link.finish(ctx, c.call)
		if !done {
			return nil, err // the results are the reader's yet
		}
		c.call, c.err = nil, err
	}
	return c.results, c.err
}

// lend makes f a fill without shared memory: a lookup tells which slots exist,
// and the others get memory of this process.
func (f *Fill) lend(ctx context.Context, o ReserveOptions, sizes []uint32) error {
	n, err := f.count(o, sizes)
	if err != nil {
		return err
	}
	m, err := f.c.Lookup(ctx, f.prompt, 0)
	if err != nil {
		return err
	}
	f.maxAge = seconds(o.MaxAge)
	f.slots = make([]wire.Slot, n)
	f.mu.local = make([][]byte, n)
	f.mu.over = make([]bool, n)
	f.reason = Complete
	for i := range f.slots {
		s := wire.Slot{Code: Granted, Length: sizes[0]}
		if len(sizes) > 1 {
			s.Length = sizes[i]
		}
		if uint64(o.First)+uint64(i) < uint64(m.Total.Chunks) {
			s.Code = Exists
		}
		if s.Length == 0 || s.Length > f.c.hello.MaxPayload {
			return refuse("reserve", ErrTooLarge, "chunk %d has %d bytes: use 1 to %d", o.First+i, s.Length, f.c.hello.MaxPayload)
		}
		f.slots[i] = s
	}
	return nil
}

// count is the number of slots. The daemon knows how many chunks a prompt has;
// here the options and the form of the prompt have to tell.
func (f *Fill) count(o ReserveOptions, sizes []uint32) (int, error) {
	n := o.Count
	if n == 0 && len(sizes) > 1 {
		n = len(sizes)
	}
	if n == 0 {
		chunks, err := f.c.chunks(&f.prompt)
		if err != nil {
			return 0, err
		}
		n = max(0, chunks-o.First)
	}
	if n > key.MaxChunks || len(sizes) > 1 && len(sizes) != n {
		return 0, refuse("reserve", ErrBadRequest, "%d sizes for %d chunks: give one for all, or one each, for at most %d", len(sizes), n, key.MaxChunks)
	}
	return n, nil
}

// lent is the memory of slot i, made when it is first asked for.
func (f *Fill) lent(i int) []byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mu.over[i] {
		return nil
	}
	if f.mu.local[i] == nil {
		f.mu.local[i] = make([]byte, f.slots[i].Length)
	}
	return f.mu.local[i]
}

// send commits n slots from first by putting them inline, run by run.
func (f *Fill) send(ctx context.Context, first, n int, out []Stored) ([]Stored, error) {
	for i := first; i < first+n; {
		run := f.take(i, first+n)
		if len(run) == 0 {
			out = append(out, Stored{Code: ResultNotGranted})
			i++
			continue
		}
		var err error
		if out, err = f.c.put(ctx, &f.prompt, wire.PutRequest{First: uint32(f.first + i), MaxAge: f.maxAge}, run, out); err != nil {
			return out, err
		}
		i += len(run)
	}
	return out, nil
}

// take ends the slots of the run of granted ones from i up to end and returns
// their memory. A slot that was never written holds zeros.
func (f *Fill) take(i, end int) [][]byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	var run [][]byte
	for ; i < end && f.slots[i].Code == Granted && !f.mu.over[i]; i++ {
		p := f.mu.local[i]
		if p == nil {
			p = make([]byte, f.slots[i].Length)
		}
		run = append(run, p)
		f.mu.over[i], f.mu.local[i] = true, nil
	}
	return run
}

func (f *Fill) drop(first, n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := first; i < first+n; i++ {
		f.mu.over[i], f.mu.local[i] = true, nil
	}
}
