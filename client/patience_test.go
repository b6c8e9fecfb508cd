package client

import (
	"context"
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kvstored/kvstored/internal/test/pipe"
	"github.com/kvstored/kvstored/internal/wire"
)

const impatient = 20 * time.Second

func impatientSetup() setup {
	s := inlineSetup()
	s.options.Timeout = impatient
	return s
}

// TestSilentDaemon: no call without a deadline waits for ever, however it is made.
func TestSilentDaemon(t *testing.T) {
	ctx, prompt := context.Background(), Tokens([]uint32{1, 2, 3, 4})
	calls := map[string]func(*Client) error{
		"ping":     func(c *Client) error { return c.Ping(ctx) },
		"lookup":   func(c *Client) error { _, err := c.Lookup(ctx, prompt, 0); return err },
		"prefetch": func(c *Client) error { _, err := c.Prefetch(ctx, prompt, PrefetchOptions{}); return err },
		"get":      func(c *Client) error { _, err := c.Get(ctx, prompt, GetOptions{}); return err },
		"flush":    func(c *Client) error { _, err := c.Flush(ctx, true); return err },
		"delete":   func(c *Client) error { _, err := c.DeletePrompt(ctx, prompt); return err },
	}
	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := mustDial(t, impatientSetup(), (*fake).drain)
				want, begun := impatient, time.Now()
				if name == "get" || name == "flush" || name == "delete" {
					want += impatient // of the ping that asks whether it is worth while
				}
				if err := call(c); !errors.Is(err, ErrNoAnswer) || time.Since(begun) != want {
					t.Errorf("got %v after %v, want %v", err, time.Since(begun), want)
				}
			})
		})
	}
}

// TestSilentDaemonThatDoesNotRead: nor does a call that cannot be sent.
func TestSilentDaemonThatDoesNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hold := make(chan struct{})
		c := mustDial(t, impatientSetup(), func(*fake) { <-hold })
		defer close(hold)
		done := make(chan error)
		for range 2 { // one writes, one waits to write
			go func() {
				_, err := c.Put(context.Background(), Tokens([]uint32{1, 2, 3, 4}), 0, [][]byte{make([]byte, 8<<20)})
				done <- err
			}()
		}
		for range 2 {
			if err := <-done; !errors.Is(err, ErrNoAnswer) {
				t.Error(err)
			}
		}
	})
}

// TestSilentHello: nor does Dial.
func TestSilentHello(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := pipe.New()
		defer far.Close()
		begun := time.Now()
		_, err := Dial(context.Background(), "silent", Options{Timeout: impatient, Dialer: func(context.Context, string) (net.Conn, error) { return near, nil }})
		if !errors.Is(err, ErrNoAnswer) || time.Since(begun) != impatient {
			t.Errorf("got %v after %v", err, time.Since(begun))
		}
	})
}

// TestSlowAnswer: a call that takes its time is waited for while the daemon
// answers pings; and a job while it loads.
func TestSlowAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := mustDial(t, impatientSetup(), func(f *fake) {
			flush := f.next()
			f.pongs(3)
			f.reply(flush, &wire.FlushReply{Chunks: 7})
			f.reply(f.next(), &wire.PrefetchReply{Job: 1, State: wire.JobState{Code: wire.CodeRunning}})
			f.pongs(3)
			f.push(1, &wire.JobState{Code: wire.CodeGap})
			f.drain()
		})
		ctx, begun := context.Background(), time.Now()
		took := func(what string, want time.Duration) {
			t.Helper()
			if got := time.Since(begun); got != want {
				t.Errorf("%s took %v, want %v", what, got, want)
			}
			begun = time.Now()
		}
		if flushed, err := c.Flush(ctx, false); err != nil || flushed.Chunks != 7 {
			t.Errorf("flush: %+v, %v", flushed, err)
		}
		took("the flush", 3*impatient)
		job, err := c.Prefetch(ctx, Tokens([]uint32{1, 2, 3, 4}), PrefetchOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if st, err := job.Wait(ctx, All); err != nil || st.Reason != wire.CodeGap {
			t.Errorf("wait: %+v, %v", st, err)
		}
		took("the job", 3*impatient)
		if err := c.Ping(ctx); !errors.Is(err, ErrNoAnswer) {
			t.Errorf("a ping: %v", err)
		}
		took("a ping", impatient)
	})
}

// pongs answers n pings.
func (f *fake) pongs(n int) {
	for range n {
		f.reply(f.expect(wire.OpPing, wire.EmptyRequest{}), wire.EmptyReply{})
	}
}

// TestOwnDeadline: a context's own deadline counts alone, also a longer one.
func TestOwnDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := mustDial(t, impatientSetup(), func(f *fake) {
			r := f.next()
			time.Sleep(2 * impatient)
			f.reply(r, wire.EmptyReply{})
			f.drain()
		})
		if err := c.Ping(testContext(t)); err != nil {
			t.Error(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), impatient/2)
		defer cancel()
		if err := c.Ping(ctx); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrNoAnswer) {
			t.Error(err)
		}
	})
}
