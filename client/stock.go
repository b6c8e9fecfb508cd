package client

import (
	"context"
	"errors"
	"time"

	"github.com/kvstored/kvstored/internal/wire"
)

const (
	// smallBytes is how large a chunk of a stock is at most, and its prompt.
	smallBytes = 256 << 10
	// stockSlots is how many slots are reserved together: with more the puts that wait
	// wait longer, with fewer more of them wait. They are an eighth of the staging
	// window at most.
	stockSlots = 4
	// gatherBytes is how many bytes, of chunks and their prompts, a stock has before
	// their commits are sent: half as many wake the daemon for each.
	gatherBytes = 128 << 10
)

// stock is slots without keys that a Writer has reserved for chunks that it is not
// given yet. Each commit names its slot, and nobody waits for it: a round trip is
// made for a stock, not for a put.
//
// The Writer reserves a stock when a chunk that is put by itself is like the one
// before, and that is still under way. A put that is not like it, or whose results are
// waited for, ends the stock; and so may a reservation of the same Client, see stocks.
type stock struct {
	kind  kind
	until time.Time
	// The mutex of stocks guards fill, next, last and writing.
	fill       *Fill
	next, last int  // the slots from next on, before last, have no chunk
	writing    bool // the chunk of slot next is being written

	// commits are how many were not sent yet, and bytes what their chunks and prompts have.
	commits, bytes int
	// asks is set by a chunk that was not stored, because it is there already or has no
	// room: until one is granted again each put reserves its own slot and learns that
	// before it is written.
	asks bool
}

// kind is what the slots of a stock have in common; that of size 0 has no stock.
type kind struct{ space, size, maxAge uint32 }

// kindOf is of which kind of stock a put is. What only a reservation with keys can do
// has none.
func (w *Writer) kindOf(p *Prompt, o *ReserveOptions, sizes []uint32) (k kind) {
	one := len(sizes) == 1 && (len(o.Sizes) == 1 || o.Count == 1)
	if w.c.hello.Puts != wire.PutStaged || !one || sizes[0] > smallBytes || !o.plain() || !p.sent() || p.bytes() > smallBytes {
		return k
	}
	space, err := w.c.spaceOr(wire.OpCommit, p.Space)
	if err != nil {
		return k
	}
	if n, err := w.c.chunks(p); err != nil || o.First >= n { // the daemon may know of an unfull one
		return k
	}
	return kind{space.info.Handle, sizes[0], seconds(o.MaxAge)}
}

// plain reports whether a reservation without keys can say what o says of one chunk.
func (o *ReserveOptions) plain() bool {
	return o.Wait == 0 && o.Every == 0 && len(o.Groups) == 0 && len(o.Sums) == 0
}

// sent reports whether each call sends the whole of p.
func (p *Prompt) sent() bool { return p.form != wire.FormRef && p.keep == nil && p.Grain == 0 }

// putStocked puts a chunk into the next slot of the stock. It reports false, having
// done nothing, where the put is none for a stock.
func (w *Writer) putStocked(ctx context.Context, s *Storing, p *Prompt, o *ReserveOptions, k kind, write func(i int, dst []byte) error) (bool, error) {
	t := &w.stock
	newest := len(w.under) - 1
	if k.size == 0 || k != t.kind || t.asks || newest < 0 || w.under[newest].call == nil {
		w.endStock()
		t.kind, t.commits, t.bytes = k, 1, 0
		return false, nil
	}
	chain, err := w.c.chain(wire.OpCommit, p)
	if err != nil {
		return false, err
	}
	if err := w.refill(ctx); err != nil {
		return false, err
	}
	fill, slot, ok := w.c.stocks.begin(t)
	if !ok {
		return false, nil
	}
	err = write(0, fill.Bytes(slot))
	last := w.c.stocks.end(t, err == nil)
	if err != nil {
		return false, err
	}
	chain.Skip += uint32(o.First)
	c := fill.commitNamed(slot, &chain)
	w.track(s, c, o.First)
	t.commits++
	if t.bytes += int(k.size) + p.bytes(); t.bytes >= gatherBytes && !last {
		t.commits, t.bytes = 0, 0
		c.err = w.c.link.send(ctx, 0, nil)
	}
	return true, nil
}

// refill reserves a stock unless the one at hand has a slot left and was reserved
// lately: one that ages is revoked. There is none where the window has no room for two slots.
func (w *Writer) refill(ctx context.Context) error {
	t := &w.stock
	if err := w.c.link.usable(ctx); err != nil {
		return err
	}
	if w.c.stocks.has(t) && time.Now().Before(t.until) {
		return nil
	}
	w.endStock()
	n := min(stockSlots, int(w.c.hello.StagingBytes/8/uint64(t.kind.size)))
	if n < 2 {
		return nil
	}
	fill := &Fill{c: w.c}
	err := fill.ask(ctx, &wire.ReserveRequest{
		Chain: wire.Chain{Form: wire.FormNone, Space: t.kind.space},
		Count: uint32(n), Sizes: wire.ViewU32s([]uint32{t.kind.size}), MaxAge: t.kind.maxAge,
	}, true)
	if refused := (*Error)(nil); errors.As(err, &refused) || err == nil && fill.Len() == 0 {
		t.asks = true
		return nil
	}
	if err != nil {
		return err
	}
	t.until = time.Now().Add(w.c.LeaseAge() / 2)
	w.c.stocks.put(t, fill)
	err = w.wait(ctx, t.commits) // the others came before the reservation, and are answered
	if t.commits, t.bytes = 0, 0; t.asks {
		w.endStock()
	}
	return err
}

// endStock gives back the slots that no chunk has.
func (w *Writer) endStock() {
	if f, from, to := w.c.stocks.take(&w.stock); from < to {
		f.giveBackRange(from, to-from)
	}
}

// learn takes what became of a commit of a stock. One that was refused leaves its slot
// live, which is given back.
func (t *stock) learn(c *Commit) {
	if !c.named {
		return
	}
	t.asks = t.asks || c.err != nil || c.results[0].Code != ResultStored
	if refused := (*Error)(nil); errors.As(c.err, &refused) {
		c.fill.giveBackRange(c.slot, 1)
	}
}
