package client

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zeebo/xxh3"

	"github.com/kvstored/kvstored/internal/wire"
)

func TestWaitForPushes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		step := make(chan struct{})
		c := mustDial(t, inlineSetup(), func(f *fake) {
			var m wire.PrefetchRequest
			r := f.expect(wire.OpPrefetch, &m)
			if m.LookupID != "req" || m.LoadMillis != 1500 || m.Chain.Space != 1 || m.Chain.Tokens.Len() != 12 {
				f.t.Errorf("request %+v", m)
			}
			f.reply(r, &wire.PrefetchReply{Job: 5, Match: wire.Match{Total: ready(3)}, State: wire.JobState{Code: wire.CodeRunning,
				Ready: ready(1), Refs: refs(wire.Ref{Sum: 10}),
			}})
			<-step
			f.push(5, &wire.JobState{Code: wire.CodeRunning, Ready: ready(2), First: 1, Refs: refs(wire.Ref{Sum: 11})})
			<-step
			// A wait may have asked for refs that a push had brought already.
			f.push(5, &wire.JobState{Code: StoppedFailed, FailedTier: wire.TierDisk, Ready: ready(3), First: 1, Refs: refs(wire.Ref{Sum: 11}, wire.Ref{Sum: 12})})
			f.drain()
		})
		ctx := testContext(t)
		j, err := c.Prefetch(ctx, Tokens(make([]uint32, 12)), PrefetchOptions{LookupID: "req", Deadline: 1500 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		if n, tokens := j.Ready(); n != 1 || tokens != 4 || j.Match().Total != ready(3) {
			t.Errorf("%d chunks, %d tokens, matched %+v", n, tokens, j.Match())
		}
		if _, err := j.Sum(1); !errors.Is(err, ErrNotReady) {
			t.Errorf("chunk 1: %v", err)
		}
		if s, err := j.Wait(ctx, 4); err != nil || s.Ready != ready(1) {
			t.Errorf("%+v, %v", s, err)
		}
		short, cancel := context.WithTimeout(ctx, 5*time.Millisecond)
		defer cancel()
		if s, err := j.Wait(short, 8); !errors.Is(err, context.DeadlineExceeded) || s.Ready != ready(1) {
			t.Errorf("%+v, %v", s, err)
		}
		step <- struct{}{}
		if s, err := j.Wait(ctx, 8); err != nil || s.Ready != ready(2) || s.Done {
			t.Errorf("%+v, %v", s, err)
		}
		step <- struct{}{}
		if s, err := j.Wait(ctx, All); err != nil || !s.Done || s.Reason != StoppedFailed || s.FailedTier != "disk" {
			t.Errorf("%+v, %v", s, err)
		}
		if sum, err := j.Sum(2); err != nil || sum != 12 {
			t.Errorf("%d, %v", sum, err)
		}
	})
}

// TestWaitAsks covers daemons that grant no pushes, and best effort, where the
// first wait is what ends the job.
func TestWaitAsks(t *testing.T) {
	for _, policy := range []WaitPolicy{WaitComplete, BestEffort} {
		t.Run(policy.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := inlineSetup()
				if policy != BestEffort {
					s.hello.Granted = 0
				}
				c := mustDial(t, s, func(f *fake) {
					f.reply(f.next(), &wire.PrefetchReply{Job: 5, State: wire.JobState{Code: wire.CodeRunning, Ready: ready(1), Refs: refs(wire.Ref{})}})
					var m wire.WaitRequest
					r := f.expect(wire.OpWait, &m)
					if m.Job != 5 || m.MinTokens != 8 || m.From != 1 || m.Deadline.Millis == 0 {
						f.t.Errorf("request %+v", m)
					}
					f.reply(r, &wire.JobState{Code: Complete, Ready: ready(2), First: 1, Refs: refs(wire.Ref{})})
					f.drain()
				})
				j, err := c.Prefetch(testContext(t), Tokens([]uint32{1}), PrefetchOptions{Policy: policy})
				if err != nil {
					t.Fatal(err)
				}
				if s, err := j.Wait(testContext(t), 8); err != nil || s.Ready != ready(2) {
					t.Errorf("%+v, %v", s, err)
				}
			})
		})
	}
}

// TestWaitThatLeaves: the refs of a wait reply are taken in even if its caller
// has gone, because the next push builds on them.
func TestWaitThatLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked, left := make(chan struct{}), make(chan struct{})
		c := mustDial(t, inlineSetup(), func(f *fake) {
			f.reply(f.next(), &wire.PrefetchReply{Job: 5, State: wire.JobState{Code: wire.CodeRunning}})
			wait := f.next()
			close(asked)
			<-left
			f.reply(wait, &wire.JobState{Code: wire.CodeRunning, Ready: ready(1), Refs: refs(wire.Ref{})})
			f.push(5, &wire.JobState{Ready: ready(2), First: 1, Refs: refs(wire.Ref{})})
			f.pong()
		})
		j, err := c.Prefetch(testContext(t), Tokens([]uint32{1}), PrefetchOptions{Policy: BestEffort})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(testContext(t))
		go func() {
			<-asked
			cancel()
		}()
		if _, err := j.Wait(ctx, All); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		close(left)
		if err := c.Ping(testContext(t)); err != nil {
			t.Fatal(err)
		}
		if n, _ := j.Ready(); n != 2 {
			t.Errorf("%d chunks", n)
		}
	})
}

func TestReleaseAndRenew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := mustDial(t, inlineSetup(), func(f *fake) {
			f.reply(f.next(), &wire.PrefetchReply{Job: 5, State: wire.JobState{Code: wire.CodeRunning, Ready: ready(1), Refs: refs(wire.Ref{})}})
			f.reply(f.next(), &wire.RenewReply{HoldsMillis: 2500})
			f.reply(f.next(), &wire.ReleaseReply{Code: wire.CodeRevoked})
			f.reply(f.next(), &wire.PrefetchReply{Job: 6, State: wire.JobState{Code: wire.CodeRunning}})
			f.reply(f.next(), &wire.ReleaseReply{State: wire.JobState{Code: StoppedCancelled}})
			f.drain()
		})
		ctx := testContext(t)
		j, err := c.Prefetch(ctx, Tokens([]uint32{1}), PrefetchOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if left, err := j.Renew(ctx); err != nil || left != 2500*time.Millisecond {
			t.Errorf("%v, %v", left, err)
		}
		if err := j.Release(ctx); !errors.Is(err, ErrRevoked) {
			t.Errorf("release: %v", err)
		}
		if _, err := j.Chunk(ctx, 0); !errors.Is(err, ErrUnknownJob) {
			t.Errorf("chunk after release: %v", err)
		}
		j, err = c.Prefetch(ctx, Tokens([]uint32{1}), PrefetchOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if s, err := j.Cancel(ctx); err != nil || s.Reason != StoppedCancelled {
			t.Errorf("%+v, %v", s, err)
		}
		if len(c.mu.jobs) != 0 {
			t.Errorf("%d jobs are still known", len(c.mu.jobs))
		}
	})
}

// TestReleaseIsWaitedForAgain: what became of a release is told whenever it is asked for,
// also behind a context that has ended.
func TestReleaseIsWaitedForAgain(t *testing.T) {
	for name, tc := range map[string]struct {
		answer func(*fake, request)
		want   error
	}{
		"held":    {func(f *fake, r request) { f.reply(r, &wire.ReleaseReply{}) }, nil},
		"revoked": {func(f *fake, r request) { f.reply(r, &wire.ReleaseReply{Code: wire.CodeRevoked}) }, ErrRevoked},
		"refused": {func(f *fake, r request) { f.refuse(r, ErrUnknownJob, "no") }, ErrUnknownJob},
		"closed":  {func(f *fake, _ request) { f.nc.Close() }, ErrDisconnected},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				left := make(chan struct{})
				c := mustDial(t, inlineSetup(), func(f *fake) {
					f.reply(f.next(), &wire.PrefetchReply{Job: 5, State: wire.JobState{Code: wire.CodeRunning}})
					r := f.next()
					<-left
					tc.answer(f, r)
					f.drain()
				})
				j, err := c.Prefetch(testContext(t), Tokens([]uint32{1}), PrefetchOptions{})
				if err != nil {
					t.Fatal(err)
				}
				r := j.ReleaseSoon()
				ended, cancel := context.WithCancel(testContext(t))
				cancel()
				if err := r.Wait(ended); !errors.Is(err, context.Canceled) {
					t.Errorf("%v", err)
				}
				close(left)
				for range 2 {
					if err := r.Wait(testContext(t)); !errors.Is(err, tc.want) {
						t.Errorf("later: %v, want %v", err, tc.want)
					}
				}
			})
		})
	}
}

// TestChunksInline: without shared memory a job's chunks come over the socket
// and are verified.
func TestChunksInline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		payload := []byte("hello, chunk")
		ref := wire.Ref{Length: uint32(len(payload)), Sum: xxh3.Hash(payload)}
		reply := &wire.GetReply{Chunks: wire.Chunks(nil).Add(wire.Chunk{Length: ref.Length, Sum: ref.Sum}), Payloads: payload}
		c := mustDial(t, inlineSetup(), func(f *fake) {
			f.reply(f.next(), &wire.PrefetchReply{Job: 5, State: wire.JobState{Code: wire.CodeRunning, Ready: ready(1), Refs: refs(ref)}})
			var m wire.GetRequest
			r := f.expect(wire.OpGet, &m)
			if m.Chain.Form != wire.FormRef || m.Chain.ID != 5 || m.First != 0 || m.MaxChunks != 1 {
				f.t.Errorf("request %+v", m)
			}
			f.reply(r, reply)
			f.reply(f.next(), reply)
			f.reply(f.next(), &wire.GetReply{Chunks: reply.Chunks, Payloads: []byte("hello, chunK")})
			f.reply(f.next(), &wire.GetReply{})
			f.drain()
		})
		ctx := testContext(t)
		j, err := c.Prefetch(ctx, Tokens([]uint32{1}), PrefetchOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if p, err := j.Chunk(ctx, 0); err != nil || !bytes.Equal(p, payload) {
			t.Errorf("%q, %v", p, err)
		}
		buf := make([]byte, 64)
		if n, err := j.Copy(ctx, buf, 0); err != nil || !bytes.Equal(buf[:n], payload) {
			t.Errorf("%q, %v", buf[:n], err)
		}
		if _, err := j.Copy(ctx, buf[:3], 0); !errors.Is(err, io.ErrShortBuffer) {
			t.Errorf("short buffer: %v", err)
		}
		if _, err := j.Copy(ctx, buf, 0); !errors.Is(err, ErrCorrupt) {
			t.Errorf("other bytes: %v", err)
		}
		if _, err := j.Copy(ctx, buf, 0); !errors.Is(err, ErrRevoked) {
			t.Errorf("no bytes: %v", err)
		}
	})
}
