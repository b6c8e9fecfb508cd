package client

import (
	"context"
	"errors"
	"slices"

	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/wire"
)

const (
	// commitsInFlight is how many commits of a Writer are under way at most.
	// One more than the daemon works on keeps it busy; each keeps its part of
	// the staging window until it is done.
	commitsInFlight = 2
	// commitBytes is from how many bytes on slots are committed while the ones
	// behind them are filled. For less, the request costs more than it gains.
	commitBytes = 512 << 10
)

// Writer stores chunks of one prompt after another in one round trip each: the
// commit of one and the reservation of the next go out together, and the daemon
// takes over written chunks while the caller writes the next. At most two
// commits are under way. What a Put has written is committed with the next Put,
// or by Wait or Flush: end with one of them. A Writer is for one goroutine at a
// time; a Client may have several, as long as the staging window has room for
// what they write.
type Writer struct {
	c     *Client
	under []*Commit // not waited for yet, in the order of their requests
}

// NewWriter returns a Writer on a connection.
func NewWriter(c *Client) *Writer { return &Writer{c: c} }

// Put stores chunks of a prompt, those that o says, as Store does. Beside an error
// the chunks before the one that it is about are stored. Only Wait tells what
// became of each.
func (w *Writer) Put(ctx context.Context, p Prompt, o ReserveOptions, write func(i int, dst []byte) error) (*Storing, error) {
	s := new(Storing)
	sizes, err := w.c.sizes(&o)
	if err != nil {
		return s, err
	}
	n := len(sizes)
	if len(o.Sizes) == 0 {
		if n = o.Count; n == 0 {
			return s, refuse("store", ErrBadRequest, "how many chunks? Say Count or Sizes")
		}
	}
	for i := 0; i < n; {
		part := o
		part.First, part.Count = o.First+i, n-i
		if w.c.hello.Puts == wire.PutInline {
			part.Count = chunksOf(pieceBytes, sizes, i, n)
		}
		if len(o.Sizes) > 0 {
			part.Sizes = o.Sizes[i:][:part.Count]
		}
		part.Sums = sumsOf(o.Sums, i, part.Count)
		done, err := w.part(ctx, s, p, part, func(slot int, dst []byte) error { return write(i+slot, dst) })
		if err != nil {
			return s, err
		}
		i += done
	}
	return s, nil
}

// sumsOf is the sums of n slots from first on, as a fill that begins there has them.
func sumsOf(sums map[int]uint64, first, n int) map[int]uint64 {
	if len(sums) == 0 {
		return nil
	}
	of := make(map[int]uint64)
	for slot, sum := range sums {
		if slot >= first && slot < first+n {
			of[slot-first] = sum
		}
	}
	return of
}

// part stores as many chunks as there is room for, at least one, and returns how
// many.
func (w *Writer) part(ctx context.Context, s *Storing, p Prompt, o ReserveOptions, write func(i int, dst []byte) error) (int, error) {
	fill, err := w.reserve(ctx, p, o)
	if err != nil {
		return 0, err
	}
	if fill.Len() == 0 {
		return 0, refuse("store", codeOf(fill.Reason()), "no room for chunk %d", o.First)
	}
	inline := w.c.hello.Puts == wire.PutInline // all of it is sent at the end
	// A prompt that its quota cuts short ends there: what is committed before the
	// rest is refused could be written, and let go for the rest.
	whole := inline || fill.Reason() == StoppedOverQuota
	from, bytes := 0, 0
	for i := range fill.Len() {
		if fill.Status(i) == Granted {
			if err := write(i, fill.Bytes(i)); err != nil {
				fill.giveBack(from)
				return 0, err
			}
			bytes += fill.Length(i)
		}
		last := i == fill.Len()-1
		if !last && (whole || bytes < commitBytes) {
			continue
		}
		if err := w.commit(ctx, s, fill, from, i+1-from, last); err != nil {
			fill.giveBack(from)
			return 0, err
		}
		from, bytes = i+1, 0
	}
	if inline { // whether there was room shows only now
		return s.settle(ctx, o.First, fill.Len())
	}
	if fill.Reason() == StoppedOverQuota {
		return fill.Len(), w.wait(ctx, 0)
	}
	return fill.Len(), nil
}

// reserve asks for room. Where commits under way have it, or the chunks themselves, it
// waits for them.
func (w *Writer) reserve(ctx context.Context, p Prompt, o ReserveOptions) (*Fill, error) {
	fill := &Fill{c: w.c, prompt: p, first: o.First}
	err := fill.reserve(ctx, o, true)
	switch {
	case len(w.under) == 0 || err != nil && !isFull(err):
		return fill, err
	case err == nil && fill.Len() > 0:
		if !slices.ContainsFunc(fill.slots, func(s wire.Slot) bool { return s.Code == Pending }) {
			return fill, nil
		}
		fill.giveBack(0)
	}
	if err := w.wait(ctx, 0); err != nil {
		return nil, err
	}
	return w.c.Reserve(ctx, p, o)
}

// commit has n slots from first committed, with the next request if they are the
// last of their fill. It waits while too many commits are under way.
func (w *Writer) commit(ctx context.Context, s *Storing, f *Fill, first, n int, last bool) error {
	if err := w.wait(ctx, commitsInFlight-1); err != nil {
		return err
	}
	var c *Commit
	if last {
		c = f.commitSoon(ctx, first, n)
	} else {
		c = f.StartCommit(ctx, first, n)
	}
	s.parts = append(s.parts, c)
	w.under = append(w.under, c)
	return nil
}

// giveBack has the slots from one on aborted. It waits for nothing, so that it
// works where the context of the caller has ended, too: what is not given back
// keeps its part of the staging window until the connection ends.
func (f *Fill) giveBack(from int) {
	switch n := len(f.slots) - from; {
	case f.c.hello.Puts == wire.PutInline:
		f.drop(from, n)
	case f.id != 0:
		f.c.link.giveBack(wire.OpAbort, &wire.FillRequest{Fill: f.id, First: uint32(from), Count: uint32(n)})
		f.c.link.sweep()
	}
}

// wait waits until at most n commits are under way. What the daemon says of them
// is for Storing.Wait; the error is that of ctx or of the connection.
func (w *Writer) wait(ctx context.Context, n int) (err error) {
	done := 0
	for err == nil && len(w.under)-done > n {
		c := w.under[done]
		_, failed := c.Wait(ctx)
		if c.call != nil { // it goes on
			err = failed
			break
		}
		done++
		if refused := (*Error)(nil); failed != nil && !errors.As(failed, &refused) {
			err = failed
		}
	}
	w.under = slices.Delete(w.under, 0, done)
	return err
}

// Flush sends all commits and returns when none is under way. Its error
// is that of ctx or of the connection: what became of the chunks is for Wait.
func (w *Writer) Flush(ctx context.Context) error { return w.wait(ctx, 0) }

// Storing is what a Put has under way. Its methods are for the goroutine of the
// Writer.
type Storing struct{ parts []*Commit }

// Wait returns a result for each chunk, up to the first commit that has failed, and
// the error of that commit. Where ctx ends before, the commits go on, and a later Wait
// returns what became of them.
func (s *Storing) Wait(ctx context.Context) ([]Stored, error) { return s.results(ctx, nil) }

// results appends them to out.
func (s *Storing) results(ctx context.Context, out []Stored) ([]Stored, error) {
	for _, p := range s.parts {
		results, err := p.Wait(ctx)
		if err != nil {
			return out, err
		}
		for i, r := range results {
			switch p.fill.Status(p.slot + i) {
			case Granted:
			case Pending:
				r.Code = ResultPending
			default:
				r.Code = ResultExists
			}
			out = append(out, r)
		}
	}
	return out, nil
}

// settle ends the last part, of n chunks from chunk number first on, where the
// daemon says only at the commit that it has no room, and returns how many chunks
// it had room for.
func (s *Storing) settle(ctx context.Context, first, n int) (int, error) {
	part := s.parts[len(s.parts)-1]
	results, err := part.Wait(ctx)
	if err != nil {
		return 0, err
	}
	for i, r := range results {
		if noRoom[r.Code] == 0 {
			continue
		}
		part.results = results[:i]
		if i == 0 {
			return 0, refuse("store", noRoom[r.Code], "no room for chunk %d", first)
		}
		return i, nil
	}
	return n, nil
}

// CopyTo copies a payload to the memory of a slot, and returns how many bytes it
// has copied: Fill.Write for what Store and Put hand out. The memory counts as cold: the
// daemon reads it, often on a processor that shares no cache with this one.
func CopyTo(dst, payload []byte) int { return arena.CopyCold(dst, payload) }

var noRoom = map[Result]Code{ResultNoSpace: ErrNoSpace, ResultOverBudget: ErrOverBudget, ResultOverQuota: ErrOverQuota, ErrDeclined: ErrDeclined}

// isFull reports whether err says that there is no room.
func isFull(err error) bool {
	return errors.Is(err, ErrNoSpace) || errors.Is(err, ErrOverBudget) || errors.Is(err, ErrOverQuota) || errors.Is(err, ErrDeclined)
}

// codeOf is the error of a fill without slots.
func codeOf(r Reason) Code {
	switch r {
	case StoppedOverBudget, StoppedOverQuota, ErrDeclined:
		return r
	}
	return ErrNoSpace
}
