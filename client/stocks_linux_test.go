package client

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/wire"
)

// full refuses reservations, as many as there are at a time.
func (f *fake) full(n int) {
	var rs []request
	for range n {
		rs = append(rs, f.reserved())
	}
	for _, r := range rs {
		f.refuse(r, ErrOverBudget, "the window is full")
	}
}

// Of two reservations that find no room at a time both have that of a stock, though only
// one of them gives it back.
func TestStocksGiveWayToAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := windowed(t, func(f *fake, _ *arena.Window) {
			f.begun()
			f.answer(f.named(2, 0), ResultStored)
			f.full(2)
			f.aborted(2, 1, stockSlots-1)
			f.grant(f.reserved(), 3, 0, small, 1)
			f.grant(f.reserved(), 4, small, small, 1)
			f.full(1)
			f.drain()
		})
		w := NewWriter(c)
		put(t, w, 1, small)
		put(t, w, 1, small)
		reserve := func() error {
			_, err := c.Reserve(testContext(t), Tokens(make([]uint32, 4)), ReserveOptions{Count: 1, Size: small})
			return err
		}
		other := make(chan error)
		go func() { other <- reserve() }()
		if err := errors.Join(reserve(), <-other); err != nil {
			t.Errorf("room was given back: %v", err)
		}
		if err := reserve(); !errors.Is(err, ErrOverBudget) {
			t.Errorf("there is nothing to give back: %v", err)
		}
	})
}

// The slot of a chunk that is being written is not given back, and takes the chunk.
func TestStocksKeepWhatIsWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := windowed(t, func(f *fake, _ *arena.Window) {
			f.begun()
			f.answer(f.named(2, 0), ResultStored)
			f.full(1)
			f.aborted(2, 2, stockSlots-2)
			f.full(1)
			f.answer(f.named(2, 1), ResultStored)
			f.pong()
		})
		w := NewWriter(c)
		put(t, w, 1, small)
		put(t, w, 1, small)
		one := ReserveOptions{Count: 1, Size: small}
		s, err := w.Put(testContext(t), Tokens(make([]uint32, 4)), one, func(int, []byte) error {
			if _, err := c.Reserve(testContext(t), Tokens(make([]uint32, 4)), one); !errors.Is(err, ErrOverBudget) {
				t.Errorf("a reservation beside a full window: %v", err)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if rs, err := s.Wait(testContext(t)); err != nil || len(rs) != 1 || rs[0].Code != ResultStored {
			t.Errorf("%+v, %v", rs, err)
		}
		if err := c.Ping(testContext(t)); err != nil {
			t.Fatal(err)
		}
	})
}

// A reservation that asks once more waits no longer in all than it may.
func TestStocksGiveWayInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const wait, first = 10 * time.Second, 50 * time.Millisecond
		c := windowed(t, func(f *fake, _ *arena.Window) {
			f.begun()
			f.answer(f.named(2, 0), ResultStored)
			var m wire.ReserveRequest
			r := f.expect(wire.OpReserve, &m)
			if m.Deadline != wire.Within(wait) {
				f.t.Errorf("it may wait %+v", m.Deadline)
			}
			time.Sleep(first)
			f.refuse(r, ErrOverBudget, "the window is full")
			f.aborted(2, 1, stockSlots-1)
			r = f.expect(wire.OpReserve, &m)
			if !m.Deadline.Given || m.Deadline.Or(0) > wait-first {
				f.t.Errorf("once more it may wait %+v", m.Deadline)
			}
			f.grant(r, 3, 0, small, 1)
			f.drain()
		})
		w := NewWriter(c)
		put(t, w, 1, small)
		put(t, w, 1, small)
		if _, err := c.Reserve(testContext(t), Tokens(make([]uint32, 4)), ReserveOptions{Count: 1, Size: small, Wait: wait}); err != nil {
			t.Fatal(err)
		}
	})
}

// patient counts what asks for its deadline, as each wait for a silent daemon does.
type patient struct {
	context.Context
	asked int
}

func (p *patient) Deadline() (time.Time, bool) {
	p.asked++
	return p.Context.Deadline()
}

// Wait waits for a silent daemon once.
func TestStoringIsPatientOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := windowed(t, func(f *fake, _ *arena.Window) {
			f.grant(f.reserved(), 1, 0, small, 1)
			f.drain()
		})
		c.link.patience = newPatience(impatient)
		w := NewWriter(c)
		s := put(t, w, 1, small)
		waits := func(wait func(context.Context) ([]Stored, error)) int {
			ctx := &patient{Context: context.Background()}
			if rs, err := wait(ctx); !errors.Is(err, ErrNoAnswer) || len(rs) > 0 {
				t.Errorf("%+v, %v", rs, err)
			}
			return ctx.asked
		}
		once := waits(s.parts[0].commit.Wait)
		if n := waits(s.Wait); n != once || once == 0 {
			t.Errorf("the deadline is asked for %d times, by one wait %d times", n, once)
		}
		if len(w.under) != 1 {
			t.Errorf("%d commits are under way", len(w.under))
		}
	})
}
