package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/wire"
)

// windowed is a client of a fake that puts through a window.
func windowed(t *testing.T, script func(*fake, *arena.Window)) *Client {
	t.Helper()
	w, err := arena.NewWindow(4 << 20)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	s := inlineSetup()
	s.hello.Granted |= wire.FeatureStaging
	s.hello.StagingBytes, s.hello.Puts, s.files = 4<<20, wire.PutStaged, []*os.File{w.File()}
	return mustDial(t, s, func(f *fake) { script(f, w) })
}

// grant answers a reservation with slots of n bytes, one behind the other.
func (f *fake) grant(r request, fill uint64, offset, n, slots int) {
	m := wire.ReserveReply{Fill: fill, Code: Complete}
	for i := range slots {
		m.Slots = m.Slots.Add(wire.Slot{Length: uint32(n), Offset: uint64(offset + i*n)})
	}
	f.reply(r, &m)
}

// stored answers a commit of n slots of a fill from slot first on.
func (f *fake) stored(fill uint64, first, n int) {
	var m wire.FillRequest
	r := f.expect(wire.OpCommit, &m)
	if m != (wire.FillRequest{Fill: fill, First: uint32(first), Count: uint32(n)}) {
		f.t.Errorf("commit of %+v, want %d slots of fill %d from %d on", m, n, fill, first)
	}
	rs := wire.Results(nil)
	for i := range n {
		rs = rs.Add(wire.Stored{Sum: fill<<8 | uint64(first+i)})
	}
	f.reply(r, &wire.StoreReply{Results: rs})
}

// aborted answers an abort of n slots of a fill from slot first on.
func (f *fake) aborted(fill uint64, first, n int) {
	var m wire.FillRequest
	r := f.expect(wire.OpAbort, &m)
	if m != (wire.FillRequest{Fill: fill, First: uint32(first), Count: uint32(n)}) {
		f.t.Errorf("abort of %+v, want %d slots of fill %d from %d on", m, n, fill, first)
	}
	f.reply(r, wire.EmptyReply{})
}

func (f *fake) reserved() request {
	var m wire.ReserveRequest
	return f.expect(wire.OpReserve, &m)
}

// put puts n chunks of a prompt.
func put(t *testing.T, w *Writer, n, size int) *Storing {
	t.Helper()
	s, err := w.Put(testContext(t), Tokens(make([]uint32, 4*n)), ReserveOptions{Count: n, Size: size}, func(i int, dst []byte) error {
		if len(dst) != size {
			return fmt.Errorf("chunk %d has %d bytes", i, len(dst))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// results checks what a Put stored: n chunks of a fill.
func results(t *testing.T, s *Storing, fill uint64, n int) {
	t.Helper()
	rs, err := s.Wait(testContext(t))
	if err != nil || len(rs) != n {
		t.Fatalf("%+v, %v", rs, err)
	}
	for i, r := range rs {
		if r != (Stored{Sum: fill<<8 | uint64(i)}) {
			t.Errorf("chunk %d: %+v", i, r)
		}
	}
}

// A put sends the commit of the one before behind its own reservation, in the same
// write, so that a put takes one round trip.
func TestWriterJoins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := windowed(t, func(f *fake, _ *arena.Window) {
			f.grant(f.reserved(), 1, 0, 8, 2)
			for i := range 2 {
				r := f.reserved()
				if !f.conn.Buffered() {
					f.t.Error("a reservation came without the commit of the put before")
				}
				f.grant(r, uint64(i)+2, 16, 8, 2)
				f.stored(uint64(i)+1, 0, 2)
			}
			f.stored(3, 0, 2)
			f.pong()
		})
		w := NewWriter(c)
		var all []*Storing
		for range 3 {
			all = append(all, put(t, w, 2, 8))
		}
		if err := w.Flush(testContext(t)); err != nil {
			t.Fatal(err)
		}
		for i, s := range all {
			results(t, s, uint64(i)+1, 2)
		}
		if err := c.Ping(testContext(t)); err != nil {
			t.Fatal(err)
		}
	})
}

// A long put has its first slots committed while the next are filled; its results
// are in the order of its chunks.
func TestWriterCommitsAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := windowed(t, func(f *fake, _ *arena.Window) {
			f.grant(f.reserved(), 1, 0, commitBytes, 3)
			for i := range 3 {
				f.stored(1, i, 1)
			}
			f.drain()
		})
		results(t, put(t, NewWriter(c), 3, commitBytes), 1, 3)
	})
}

// Where the window is full of what is not committed, a put waits for that; where
// there is no room otherwise, it says so.
func TestWriterFull(t *testing.T) {
	for name, full := range map[string]func(f *fake, r request){
		"refused":  func(f *fake, r request) { f.refuse(r, ErrOverBudget, "the window is full") },
		"no slots": func(f *fake, r request) { f.reply(r, &wire.ReserveReply{Code: StoppedOverBudget}) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := windowed(t, func(f *fake, _ *arena.Window) {
					f.grant(f.reserved(), 1, 0, 8, 1)
					full(f, f.reserved())
					f.stored(1, 0, 1)
					f.grant(f.reserved(), 2, 0, 8, 1)
					f.stored(2, 0, 1)
					full(f, f.reserved())
					f.pong()
				})
				w := NewWriter(c)
				first, second := put(t, w, 1, 8), put(t, w, 1, 8)
				results(t, second, 2, 1)
				results(t, first, 1, 1)
				if err := w.Flush(testContext(t)); err != nil {
					t.Fatal(err)
				}
				s, err := w.Put(testContext(t), Tokens(make([]uint32, 4)), ReserveOptions{Count: 1, Size: 8}, nil)
				if rs, waited := s.Wait(testContext(t)); !errors.Is(err, ErrOverBudget) || len(rs) > 0 || waited != nil {
					t.Errorf("%v, then %+v, %v", err, rs, waited)
				}
				if err := c.Ping(testContext(t)); err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}

// Where the caller has no bytes for a chunk, those before it are stored and the
// room behind is given back.
func TestWriterCallerFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := windowed(t, func(f *fake, _ *arena.Window) {
			f.grant(f.reserved(), 1, 0, commitBytes, 3)
			f.stored(1, 0, 1)
			f.aborted(1, 1, 2)
			f.drain()
		})
		lost := errors.New("lost")
		rs, err := c.Store(testContext(t), Tokens(make([]uint32, 12)), ReserveOptions{Count: 3, Size: commitBytes}, nil, func(i int, _ []byte) error {
			if i == 1 {
				return lost
			}
			return nil
		})
		if err != lost || len(rs) != 1 {
			t.Errorf("%+v, %v", rs, err)
		}
	})
}

// What a commit is refused with is for its own Wait; the puts behind go on.
func TestWriterCommitRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := windowed(t, func(f *fake, _ *arena.Window) {
			f.grant(f.reserved(), 1, 0, 8, 2)
			r := f.reserved()
			f.refuse(f.next(), ErrRevoked, "too old")
			f.grant(r, 2, 16, 8, 2)
			f.stored(2, 0, 2)
			f.drain()
		})
		w := NewWriter(c)
		first, second := put(t, w, 2, 8), put(t, w, 2, 8)
		if err := w.Flush(testContext(t)); err != nil {
			t.Fatal(err)
		}
		if rs, err := first.Wait(testContext(t)); !errors.Is(err, ErrRevoked) || len(rs) > 0 {
			t.Errorf("%+v, %v", rs, err)
		}
		results(t, second, 2, 2)
	})
}

// A lease that is given back soon goes ahead of a reservation that leads: it may
// have the room.
func TestReleaseGoesAheadOfReservations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := windowed(t, func(f *fake, _ *arena.Window) {
			f.reply(f.next(), &wire.PrefetchReply{Job: 5})
			f.grant(f.reserved(), 1, 0, 8, 2)
			var m wire.IDRequest
			f.reply(f.expect(wire.OpRelease, &m), &wire.ReleaseReply{})
			r := f.reserved()
			f.stored(1, 0, 2)
			f.grant(r, 2, 16, 8, 2)
			f.stored(2, 0, 2)
			f.drain()
		})
		job, err := c.Prefetch(testContext(t), Tokens(make([]uint32, 4)), PrefetchOptions{})
		if err != nil {
			t.Fatal(err)
		}
		w := NewWriter(c)
		first := put(t, w, 2, 8)
		release := job.ReleaseSoon()
		second := put(t, w, 2, 8)
		results(t, second, 2, 2)
		results(t, first, 1, 2)
		if err := release.Wait(testContext(t)); err != nil {
			t.Error(err)
		}
	})
}

// A commit that Wait could not even send goes out with the next request, and what
// becomes of it is for a later Wait.
func TestCommitGoesOutAfterWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := windowed(t, func(f *fake, _ *arena.Window) {
			f.grant(f.reserved(), 1, 0, 8, 1)
			f.stored(1, 0, 1)
			f.pong()
		})
		s := put(t, NewWriter(c), 1, 8)
		<-c.link.writer // as another goroutine that writes
		ctx, cancel := context.WithCancel(testContext(t))
		cancel()
		if rs, err := s.Wait(ctx); !errors.Is(err, context.Canceled) || len(rs) > 0 {
			t.Errorf("%+v, %v", rs, err)
		}
		c.link.writer <- struct{}{}
		if err := c.Ping(testContext(t)); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if rs, err := s.parts[0].Wait(testContext(t)); err != nil || len(rs) != 1 || rs[0].Code != ResultStored {
				t.Errorf("%+v, %v", rs, err)
			}
		}
		results(t, s, 1, 1)
	})
}

// A commit that is under way when the context of Wait ends keeps its results, or its
// refusal, or the end of the connection, for a later Wait.
func TestCommitOutlivesWait(t *testing.T) {
	for name, tc := range map[string]struct {
		answer func(*fake, request)
		want   error
	}{
		"stored": {func(f *fake, r request) {
			f.reply(r, &wire.StoreReply{Results: wire.Results(nil).Add(wire.Stored{})})
		}, nil},
		"refused": {func(f *fake, r request) { f.refuse(r, ErrRevoked, "too late") }, ErrRevoked},
		"closed":  {func(f *fake, _ request) { f.nc.Close() }, ErrDisconnected},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				left := make(chan struct{})
				c := windowed(t, func(f *fake, _ *arena.Window) {
					f.grant(f.reserved(), 1, 0, 8, 1)
					r := f.expect(wire.OpCommit, new(wire.FillRequest))
					<-left
					tc.answer(f, r)
					f.drain()
				})
				w := NewWriter(c)
				s := put(t, w, 1, 8)
				ctx, cancel := context.WithTimeout(testContext(t), 20*time.Millisecond)
				defer cancel()
				if rs, err := s.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) || len(rs) > 0 {
					t.Errorf("%+v, %v", rs, err)
				}
				close(left)
				for range 2 {
					rs, err := s.Wait(testContext(t))
					if !errors.Is(err, tc.want) || tc.want == nil && (len(rs) != 1 || rs[0].Code != ResultStored) {
						t.Errorf("later: %+v, %v; want %v", rs, err, tc.want)
					}
				}
				if _ = w.Flush(testContext(t)); len(w.under) > 0 {
					t.Errorf("%d commits are under way", len(w.under))
				}
			})
		})
	}
}

// A put whose context ends gives back what it has not committed, whether that shows
// when a chunk is written or while a commit is waited for.
func TestWriterContextEnds(t *testing.T) {
	for name, tc := range map[string]struct {
		size, ends, commits int
		silent              bool // the caller goes on writing
	}{
		"nothing committed": {8, 1, 0, false},
		"two under way":     {commitBytes, 2, 2, false},
		"a commit waits":    {commitBytes, 2, 2, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(testContext(t))
				defer cancel()
				c := windowed(t, func(f *fake, _ *arena.Window) {
					f.grant(f.reserved(), 1, 0, tc.size, 4)
					var commits []request
					for range tc.commits {
						commits = append(commits, f.expect(wire.OpCommit, new(wire.FillRequest)))
					}
					f.aborted(1, tc.commits, 4-tc.commits)
					for _, r := range commits {
						f.reply(r, &wire.StoreReply{Results: wire.Results(nil).Add(wire.Stored{})})
					}
					f.pong()
				})
				_, err := NewWriter(c).Put(ctx, Tokens(make([]uint32, 16)), ReserveOptions{Count: 4, Size: tc.size}, func(i int, _ []byte) error {
					if i < tc.ends {
						return nil
					}
					if cancel(); tc.silent {
						return nil
					}
					return ctx.Err()
				})
				if !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
				if err := c.Ping(testContext(t)); err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}

// Where a put takes several reservations, each has the sums of its own slots.
func TestWriterSums(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := windowed(t, func(f *fake, _ *arena.Window) {
			for i, want := range []wire.Sums{
				wire.Sums(nil).Add(wire.Sum{Slot: 1, Sum: 7}),
				wire.Sums(nil).Add(wire.Sum{Slot: 0, Sum: 7}),
			} {
				var m wire.ReserveRequest
				r := f.expect(wire.OpReserve, &m)
				if !bytes.Equal(m.Sums, want) {
					f.t.Errorf("reservation %d has sums %x, want %x", i, m.Sums, want)
				}
				f.grant(r, uint64(i)+1, 8*i, 8, 1)
			}
			f.stored(1, 0, 1)
			f.stored(2, 0, 1)
			f.drain()
		})
		o := ReserveOptions{Count: 2, Size: 8, Sums: map[int]uint64{1: 7}}
		rs, err := c.Store(testContext(t), Tokens(make([]uint32, 8)), o, nil, func(int, []byte) error { return nil })
		if err != nil || len(rs) != 2 {
			t.Errorf("%+v, %v", rs, err)
		}
	})
}
