package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kvstored/kvstored/internal/wire"
)

func TestDialAndPing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := mustDial(t, inlineSetup(), (*fake).pong)
		for range 3 {
			if err := c.Ping(testContext(t)); err != nil {
				t.Fatal(err)
			}
		}
		if c.Space() == nil || c.Space().ChunkTokens() != 4 || c.Server() != "fake" || c.Mapped() || c.LeaseAge() != time.Minute {
			t.Errorf("hello was taken as %+v", c.hello)
		}
	})
}

func TestRefusalIsTyped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := mustDial(t, inlineSetup(), func(f *fake) {
			f.refuse(f.next(), ErrOverBudget, "unpin something first")
			f.pong()
		})
		_, err := c.Pin(testContext(t), Tokens([]uint32{1, 2, 3, 4}), "id", time.Second)
		var refusal *Error
		if !errors.As(err, &refusal) || refusal.Op != "pin" || refusal.Text != "unpin something first" || !errors.Is(err, ErrOverBudget) || errors.Is(err, ErrNoSpace) {
			t.Errorf("got %#v", err)
		}
		if err := c.Ping(testContext(t)); err != nil {
			t.Errorf("a refusal ended the connection: %v", err)
		}
	})
}

// TestRepliesOutOfOrder has many callers wait at once and answers the last first.
func TestRepliesOutOfOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 50
		c := mustDial(t, inlineSetup(), func(f *fake) {
			var rs []request
			for range n {
				rs = append(rs, f.next())
			}
			for i := n - 1; i >= 0; i-- {
				var m wire.PinRequest
				if err := m.Decode(rs[i].body); err != nil {
					f.t.Error(err)
				}
				var v uint32
				fmt.Sscan(m.LookupID, &v)
				f.reply(rs[i], &wire.PinReply{Pinned: wire.Count{Chunks: v}})
			}
			f.drain()
		})
		var wg sync.WaitGroup
		for i := range n {
			wg.Go(func() {
				got, err := c.Unpin(testContext(t), fmt.Sprint(i))
				if err != nil || got != uint64(i) {
					t.Errorf("caller %d got %d, %v", i, got, err)
				}
			})
		}
		wg.Wait()
	})
}

// TestReaderThatLeaves: the caller that reads for all gives up; the role goes
// to the one that stays, and the late reply harms no other call.
func TestReaderThatLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		both, left := make(chan struct{}), make(chan struct{})
		c := mustDial(t, inlineSetup(), func(f *fake) {
			flush := f.next()
			ping := f.next()
			close(both)
			<-left
			f.reply(flush, &wire.FlushReply{})
			f.reply(ping, wire.EmptyReply{})
			f.pong()
		})
		ctx, cancel := context.WithCancel(context.Background())
		flushed := make(chan error)
		go func() {
			_, err := c.Flush(ctx, false)
			flushed <- err
		}()
		synctest.Wait() // the flush reads
		pinged := make(chan error)
		go func() { pinged <- c.Ping(testContext(t)) }()
		<-both
		cancel()
		if err := <-flushed; !errors.Is(err, context.Canceled) {
			t.Errorf("flush: %v", err)
		}
		close(left)
		if err := <-pinged; err != nil {
			t.Errorf("ping: %v", err)
		}
		if err := c.Ping(testContext(t)); err != nil {
			t.Errorf("ping after: %v", err)
		}
	})
}

// TestAbandonedJobIsCancelled: no caller knows the job that a late reply
// brings, so the client gives it back.
func TestAbandonedJobIsCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked, left, cancelled := make(chan struct{}), make(chan struct{}), make(chan uint64, 1)
		c := mustDial(t, inlineSetup(), func(f *fake) {
			prefetch := f.next()
			close(asked)
			<-left
			f.reply(prefetch, &wire.PrefetchReply{Job: 77, State: wire.JobState{Code: wire.CodeRunning}})
			f.reply(f.next(), wire.EmptyReply{})
			var m wire.IDRequest
			r := f.expect(wire.OpRelease, &m)
			cancelled <- m.ID
			f.reply(r, &wire.ReleaseReply{})
			f.pong()
		})
		ctx, cancel := context.WithCancel(context.Background())
		go func() {
			<-asked
			cancel()
		}()
		if _, err := c.Prefetch(ctx, Tokens([]uint32{1, 2, 3, 4}), PrefetchOptions{}); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		close(left)
		if err := c.Ping(testContext(t)); err != nil {
			t.Fatal(err)
		}
		if job := <-cancelled; job != 77 {
			t.Errorf("job %d was cancelled", job)
		}
		if err := c.Ping(testContext(t)); err != nil {
			t.Fatal(err)
		}
	})
}

func TestServerDeath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := mustDial(t, inlineSetup(), func(f *fake) {
			f.reply(f.next(), &wire.PrefetchReply{Job: 1, State: wire.JobState{Code: wire.CodeRunning}})
			f.next() // and goes without an answer
		})
		job, err := c.Prefetch(testContext(t), Tokens([]uint32{1, 2, 3, 4}), PrefetchOptions{})
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := job.Wait(testContext(t), All); !errors.Is(err, ErrDisconnected) {
				t.Errorf("wait: %v", err)
			}
		})
		wg.Go(func() {
			if err := c.Ping(testContext(t)); !errors.Is(err, ErrDisconnected) {
				t.Errorf("ping: %v", err)
			}
		})
		wg.Wait()
		if err := job.Release(testContext(t)); !errors.Is(err, ErrDisconnected) {
			t.Errorf("release: %v", err)
		}
		<-c.Done()
	})
}

func TestCloseWakesEverybody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := make(chan struct{})
		c := mustDial(t, inlineSetup(), func(f *fake) {
			f.next()
			f.next()
			close(asked)
			f.drain()
		})
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				if err := c.Ping(context.Background()); !errors.Is(err, ErrClosed) {
					t.Error(err)
				}
			})
		}
		<-asked
		c.Close()
		wg.Wait()
		if err := c.Ping(context.Background()); !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
	})
}

// TestDaemonThatDoesNotRead: a caller whose request does not fit the socket
// gets away when its context ends, and so does one that waits to write.
func TestDaemonThatDoesNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hold := make(chan struct{})
		c := mustDial(t, inlineSetup(), func(*fake) { <-hold })
		defer close(hold)
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				_, err := c.Put(ctx, Tokens([]uint32{1, 2, 3, 4}), 0, [][]byte{make([]byte, 8<<20)})
				if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, ErrDisconnected) {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	})
}

// TestManyCallersThatComeAndGo mixes callers that wait with callers that give
// up at random moments: every one that waits gets its own reply.
func TestManyCallersThatComeAndGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := mustDial(t, inlineSetup(), func(f *fake) {
			var m wire.PinRequest
			for r := f.next(); r.Op == wire.OpPin; r = f.next() {
				if err := m.Decode(r.body); err != nil {
					f.t.Error(err)
				}
				var v uint32
				fmt.Sscan(m.LookupID, &v)
				f.reply(r, &wire.PinReply{Pinned: wire.Count{Chunks: v}})
			}
		})
		var wg sync.WaitGroup
		for g := range 8 {
			wg.Go(func() {
				rng := rand.New(rand.NewPCG(uint64(g), 1))
				for i := range 200 {
					ctx, cancel := testContext(t), context.CancelFunc(func() {})
					if rng.IntN(3) == 0 {
						ctx, cancel = context.WithCancel(ctx)
						go cancel()
					}
					want := uint64(g*1000 + i)
					got, err := c.Unpin(ctx, fmt.Sprint(want))
					cancel()
					if err == nil && got != want {
						t.Errorf("got %d, want %d", got, want)
					}
					if err != nil && !errors.Is(err, context.Canceled) {
						t.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
	})
}
