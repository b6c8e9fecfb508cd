package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"testing"
	"time"

	"github.com/kvstored/kvstored/internal/wire"
)

const impatient = 50 * time.Millisecond

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
			c := mustDial(t, impatientSetup(), (*fake).drain)
			if err := call(c); !errors.Is(err, ErrNoAnswer) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// TestSilentDaemonThatDoesNotRead: nor does a call that cannot be sent.
func TestSilentDaemonThatDoesNotRead(t *testing.T) {
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
}

// TestSilentHello: nor does Dial.
func TestSilentHello(t *testing.T) {
	dir, err := os.MkdirTemp("", "kvs")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: dir + "/s", Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if _, err := Dial(context.Background(), dir+"/s", Options{Timeout: impatient}); !errors.Is(err, ErrNoAnswer) {
		t.Errorf("got %v", err)
	}
}

// TestSlowAnswer: a call that takes its time is waited for while the daemon
// answers pings; and a job while it loads.
func TestSlowAnswer(t *testing.T) {
	var err error
	for _, timeout := range []time.Duration{impatient, 10 * impatient, 100 * impatient} { // a busy machine may miss the first
		if err = slowAnswer(t, timeout); err == nil {
			return
		}
	}
	t.Error(err)
}

func slowAnswer(t *testing.T, timeout time.Duration) error {
	s := inlineSetup()
	s.options.Timeout = timeout
	c := mustDial(t, s, func(f *fake) {
		flush := f.next()
		f.pongs(3)
		f.reply(flush, &wire.FlushReply{Chunks: 7})
		f.reply(f.next(), &wire.PrefetchReply{Job: 1, State: wire.JobState{Code: wire.CodeRunning}})
		f.pongs(3)
		f.push(1, &wire.JobState{Code: wire.CodeGap})
		f.drain()
	})
	defer c.Close()
	ctx := context.Background()
	if flushed, err := c.Flush(ctx, false); err != nil || flushed.Chunks != 7 {
		return fmt.Errorf("flush: %+v, %w", flushed, err)
	}
	job, err := c.Prefetch(ctx, Tokens([]uint32{1, 2, 3, 4}), PrefetchOptions{})
	if err != nil {
		return fmt.Errorf("prefetch: %w", err)
	}
	if st, err := job.Wait(ctx, All); err != nil || st.Reason != wire.CodeGap {
		return fmt.Errorf("wait: %+v, %w", st, err)
	}
	start := time.Now()
	if err := c.Ping(ctx); !errors.Is(err, ErrNoAnswer) || time.Since(start) < timeout {
		return fmt.Errorf("a ping: %w after %v", err, time.Since(start))
	}
	return nil
}

// pongs answers n pings; what else comes of a client that asks again too soon is not
// answered, and fails its call.
func (f *fake) pongs(n int) {
	for range n {
		if r := f.next(); r.Op == wire.OpPing {
			f.reply(r, wire.EmptyReply{})
		}
	}
}

// TestOwnDeadline: a context's own deadline counts alone, also a longer one.
func TestOwnDeadline(t *testing.T) {
	c := mustDial(t, impatientSetup(), func(f *fake) {
		r := f.next()
		time.Sleep(3 * impatient)
		f.reply(r, wire.EmptyReply{})
		f.drain()
	})
	if err := c.Ping(testContext(t)); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), impatient)
	defer cancel()
	if err := c.Ping(ctx); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrNoAnswer) {
		t.Error(err)
	}
}
