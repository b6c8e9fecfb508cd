package client

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/wire"
)

const small = 64 << 10 // bytes of a chunk; two are gathered

// stocked answers the reservation of a stock.
func (f *fake) stocked(fill uint64, size int) {
	var m wire.ReserveRequest
	r := f.expect(wire.OpReserve, &m)
	if m.Chain.Form != wire.FormNone || m.Count != stockSlots || m.Sizes.Len() != 1 || int(m.Sizes.At(0)) != size {
		f.t.Errorf("a reservation of %+v, want %d slots of %d bytes without keys", m, stockSlots, size)
	}
	f.grant(r, fill, 1<<20, size, stockSlots)
}

// named is the commit of a slot of a stock, which may be a chunk of four tokens.
func (f *fake) named(fill uint64, slot int) request {
	var m wire.FillRequest
	r := f.expect(wire.OpCommit, &m)
	if m.Chain == nil || m.Chain.Tokens.Len() != 4 || m.Fill != fill || int(m.First) != slot || m.Count != 1 {
		f.t.Errorf("a commit of %+v, want slot %d of fill %d with a chain", m, slot, fill)
	}
	return r
}

// answer answers a commit of one slot.
func (f *fake) answer(r request, code Result) {
	f.reply(r, &wire.StoreReply{Results: wire.Results(nil).Add(wire.Stored{Code: code})})
}

// begun is the first put of a chunk by itself and the stock for those that follow.
func (f *fake) begun() {
	f.grant(f.reserved(), 1, 0, small, 1)
	f.stocked(2, small)
	f.stored(1, 0, 1)
}

// From the second on chunks that are put by themselves take slots of a stock. Commits
// go out two at a time, and those of a whole stock with the next reservation.
func TestStock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := windowed(t, func(f *fake, _ *arena.Window) {
			f.begun()
			under := []request{f.named(2, 0)}
			if !f.conn.Buffered() {
				f.t.Error("a commit came by itself")
			}
			under = append(under, f.named(2, 1))
			for _, r := range under {
				f.answer(r, ResultStored)
			}
			f.stocked(3, small)
			if !f.conn.Buffered() {
				f.t.Error("a reservation came without the commits of the last stock")
			}
			for slot := 2; slot < stockSlots; slot++ {
				f.answer(f.named(2, slot), ResultStored)
			}
			f.aborted(3, 1, stockSlots-1) // Flush
			f.answer(f.named(3, 0), ResultStored)
			f.grant(f.reserved(), 4, 0, small, 1) // anew
			f.stored(4, 0, 1)
			f.pong()
		})
		w := NewWriter(c)
		var all []*Storing
		for range 2 + stockSlots {
			all = append(all, put(t, w, 1, small))
		}
		if err := w.Flush(testContext(t)); err != nil {
			t.Fatal(err)
		}
		all = append(all, put(t, w, 1, small))
		for i, s := range all {
			if rs, err := s.Wait(testContext(t)); err != nil || len(rs) != 1 || rs[0].Code != ResultStored {
				t.Errorf("put %d: %+v, %v", i, rs, err)
			}
		}
		if err := c.Ping(testContext(t)); err != nil {
			t.Fatal(err)
		}
	})
}

// A put that is of another kind than the one before, or is waited for, has a
// reservation of its own, and gives back what is left of a stock.
func TestStockEnds(t *testing.T) {
	one := func(size int) ReserveOptions { return ReserveOptions{Count: 1, Size: size} }
	for name, tc := range map[string]struct {
		prompt Prompt
		o      ReserveOptions
		waits  bool // for the one before
	}{
		"other size":  {o: one(small + 1)},
		"large":       {o: one(smallBytes + 1)},
		"two chunks":  {prompt: Tokens(make([]uint32, 8)), o: ReserveOptions{Count: 2, Size: small}},
		"two sizes":   {prompt: Tokens(make([]uint32, 8)), o: ReserveOptions{Sizes: []uint32{small, small}}},
		"waits":       {o: ReserveOptions{Count: 1, Size: small, Wait: time.Second}},
		"sums":        {o: ReserveOptions{Count: 1, Size: small, Sums: map[int]uint64{0: 1}}},
		"max age":     {o: ReserveOptions{Count: 1, Size: small, MaxAge: time.Minute}},
		"groups":      {o: ReserveOptions{Count: 1, Size: small, Groups: []Group{{Space: &Space{}}}}},
		"every":       {o: ReserveOptions{Count: 1, Size: small, Every: 8}},
		"reference":   {prompt: Prompt{form: wire.FormRef, ref: 1}, o: one(small)},
		"kept":        {prompt: Tokens(make([]uint32, 4)).Kept(), o: one(small)},
		"long prompt": {prompt: Tokens(make([]uint32, 1+smallBytes/4)), o: one(small)},
		"unfull":      {prompt: Tokens(make([]uint32, 3)), o: one(small)},
		"behind it":   {o: ReserveOptions{First: 1, Count: 1, Size: small}},
		"waited for":  {o: one(small), waits: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := windowed(t, func(f *fake, _ *arena.Window) {
					f.begun()
					if tc.waits {
						f.answer(f.named(2, 0), ResultStored)
					}
					f.aborted(2, 1, stockSlots-1)
					for r := f.next(); r.Op != 0; r = f.next() {
						switch r.Op {
						case wire.OpReserve:
							var m wire.ReserveRequest
							if err := m.Decode(r.body); err != nil || m.Chain.Form == wire.FormNone {
								f.t.Errorf("%+v, %v", m, err)
							}
							f.refuse(r, ErrDenied, "no")
						case wire.OpCommit:
							f.answer(r, ResultStored)
						}
					}
				})
				w := NewWriter(c)
				put(t, w, 1, small)
				if before := put(t, w, 1, small); tc.waits {
					if _, err := before.Wait(testContext(t)); err != nil {
						t.Fatal(err)
					}
				}
				if tc.prompt.form == 0 && tc.prompt.tokens == nil {
					tc.prompt = Tokens(make([]uint32, 4))
				}
				if _, err := w.Put(testContext(t), tc.prompt, tc.o, func(int, []byte) error { return nil }); err == nil {
					t.Error("stored")
				}
			})
		})
	}
}

// Behind a chunk that was not stored each put asks before it is written, until one is
// granted; the error of one without room is its Wait's.
func TestStockAsks(t *testing.T) {
	for code, want := range map[Result]Code{
		ResultExists: 0, ResultDiffers: 0, ResultPending: 0,
		ResultNoSpace: ErrNoSpace, ResultOverBudget: ErrOverBudget, ResultOverQuota: ErrOverQuota, ErrDeclined: ErrDeclined,
	} {
		t.Run(code.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := windowed(t, func(f *fake, _ *arena.Window) {
					f.begun()
					f.answer(f.named(2, 0), code)
					f.answer(f.named(2, 1), ResultStored)
					f.stocked(5, small)
					f.answer(f.named(2, 2), ResultStored)
					f.answer(f.named(2, 3), ResultStored)
					f.aborted(5, 0, stockSlots)
					r := f.reserved()
					f.reply(r, &wire.ReserveReply{Slots: wire.Slots(nil).Add(wire.Slot{Code: Exists})})
					f.grant(f.reserved(), 3, 0, small, 1)
					f.stocked(4, small)
					f.stored(3, 0, 1)
					f.aborted(4, 1, stockSlots-1)
					f.answer(f.named(4, 0), ResultStored)
					f.drain()
				})
				w := NewWriter(c)
				put(t, w, 1, small)
				first := put(t, w, 1, small)
				for range stockSlots + 2 {
					put(t, w, 1, small)
				}
				if err := w.Flush(testContext(t)); err != nil {
					t.Fatal(err)
				}
				rs, err := first.Wait(testContext(t))
				if want != 0 && (!errors.Is(err, want) || len(rs) > 0) || want == 0 && (err != nil || len(rs) != 1 || rs[0].Code != code) {
					t.Errorf("%+v, %v", rs, err)
				}
			})
		})
	}
}

// A commit that is refused leaves its slot live: the slot is given back.
func TestStockCommitRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := windowed(t, func(f *fake, _ *arena.Window) {
			f.begun()
			f.refuse(f.named(2, 0), ErrBadRequest, "chain: no")
			f.aborted(2, 1, stockSlots-1)
			f.aborted(2, 0, 1)
			f.pong()
		})
		w := NewWriter(c)
		put(t, w, 1, small)
		s := put(t, w, 1, small)
		if rs, err := s.Wait(testContext(t)); !errors.Is(err, ErrBadRequest) || len(rs) > 0 {
			t.Errorf("%+v, %v", rs, err)
		}
		if err := c.Ping(testContext(t)); err != nil {
			t.Fatal(err)
		}
	})
}

// A slot whose bytes the caller does not have is the next put's. A put whose context
// has ended, or whose daemon is gone, says so before it is written.
func TestStockFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := windowed(t, func(f *fake, _ *arena.Window) {
			f.begun()
			f.named(2, 0)
			f.named(2, 1)
		})
		w, lost := NewWriter(c), errors.New("lost")
		putWith := func(ctx context.Context, write func(int, []byte) error) error {
			_, err := w.Put(ctx, Tokens(make([]uint32, 4)), ReserveOptions{Count: 1, Size: small}, write)
			return err
		}
		put(t, w, 1, small)
		put(t, w, 1, small)
		if err := putWith(testContext(t), func(int, []byte) error { return lost }); err != lost {
			t.Error(err)
		}
		bad := Prompt{form: wire.FormHashes, width: 7, hashes: make([]byte, 7), lengths: []uint32{4}}
		if _, err := w.Put(testContext(t), bad, ReserveOptions{Count: 1, Size: small}, nil); !errors.Is(err, ErrBadRequest) {
			t.Error(err)
		}
		ended, cancel := context.WithCancel(testContext(t))
		cancel()
		wrote := func(int, []byte) error { return fmt.Errorf("written") }
		if err := putWith(ended, wrote); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		s := put(t, w, 1, small)
		if rs, err := s.Wait(testContext(t)); !errors.Is(err, ErrDisconnected) || len(rs) > 0 {
			t.Errorf("%+v, %v", rs, err)
		}
		if err := putWith(testContext(t), wrote); !errors.Is(err, ErrDisconnected) {
			t.Error(err)
		}
	})
}

// A stock that is half as old as a lease may become is not used: the daemon may be
// about to revoke it.
func TestStockAges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := windowed(t, func(f *fake, _ *arena.Window) {
			f.begun()
			f.aborted(2, 1, stockSlots-1)
			f.stocked(3, small)
			f.answer(f.named(2, 0), ResultStored)
			f.aborted(3, 1, stockSlots-1)
			f.answer(f.named(3, 0), ResultStored)
			f.drain()
		})
		w := NewWriter(c)
		put(t, w, 1, small)
		begun := time.Now()
		put(t, w, 1, small)
		if half := 30 * time.Second; w.stock.until.Before(begun.Add(half)) || w.stock.until.After(time.Now().Add(half)) {
			t.Errorf("a stock is good for %v of a minute", w.stock.until.Sub(begun))
		}
		w.stock.until = time.Now()
		put(t, w, 1, small)
		if err := w.Flush(testContext(t)); err != nil {
			t.Fatal(err)
		}
	})
}
