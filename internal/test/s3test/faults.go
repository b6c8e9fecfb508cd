package s3test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"syscall"
	"time"
)

// Fault is what happens to one request. The zero Fault lets it pass.
type Fault struct {
	Delay    time.Duration // pass it on this much later
	Status   int           // answer with this status instead of passing it on; 404 is a stale one
	Code     string        // with this code in the body
	Reset    bool          // break the connection instead of answering
	Truncate bool          // break it in the middle of the body
	Overlong bool          // send a body of unannounced length, longer than it was
	Trickle  time.Duration // wait this long before each kilobyte of the body
	Flip     bool          // change one bit of the body
	Flood    int           // put this many bytes before the body, of Status too
}

// Rule decides what happens to a request. It is called from any goroutine.
type Rule func(r *http.Request) Fault

// Faults is an http.RoundTripper before another that makes requests fail the way
// networks and stores do, and counts them. Bodies of answers fail while they are
// read.
type Faults struct {
	// Latency is how long each request takes to its answer, before its Fault. Set
	// it before the first request.
	Latency time.Duration
	next    http.RoundTripper

	mu struct {
		sync.Mutex
		rule  Rule
		count map[string]int // requests by method; "" is all
		flood int            // bytes of a Flood that were read
	}
}

func newFaults(next http.RoundTripper) *Faults {
	f := &Faults{next: next}
	f.mu.count = make(map[string]int)
	return f
}

// Set makes rule the one for requests from now on; nil lets all pass.
func (f *Faults) Set(rule Rule) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.rule = rule
}

// Count is how many requests of a method there were so far; "" means all.
func (f *Faults) Count(method string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mu.count[method]
}

// fault counts a request and decides what happens to it.
func (f *Faults) fault(r *http.Request) Fault {
	f.mu.Lock()
	f.mu.count[r.Method]++
	f.mu.count[""]++
	rule := f.mu.rule
	f.mu.Unlock()
	if rule == nil {
		return Fault{}
	}
	return rule(r)
}

// RoundTrip implements http.RoundTripper.
func (f *Faults) RoundTrip(r *http.Request) (*http.Response, error) {
	what := f.fault(r)
	if err := pause(r.Context(), f.Latency+what.Delay); err != nil {
		return nil, err
	}
	switch {
	case what.Reset:
		return nil, fmt.Errorf("read: %w", syscall.ECONNRESET)
	case what.Status != 0:
		resp := (&failure{what.Status, what.Code}).response(r.Header.Get("Authorization"))
		resp.Request, resp.Proto, resp.ProtoMajor, resp.ProtoMinor = r, "HTTP/1.1", 1, 1
		f.flood(resp, what.Flood)
		return resp, nil
	}
	resp, err := f.next.RoundTrip(r)
	if err != nil || r.Method == http.MethodHead {
		return resp, err
	}
	f.flood(resp, what.Flood)
	what.spoil(r.Context(), resp)
	return resp, nil
}

// Flooded is how many bytes of floods were read so far.
func (f *Faults) Flooded() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mu.flood
}

// flood puts blanks before the body of an answer, n of them, and counts those read.
func (f *Faults) flood(resp *http.Response, n int) {
	if n == 0 {
		return
	}
	resp.ContentLength = -1
	resp.Header.Del("Content-Length")
	resp.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(&flood{f, n}, resp.Body), resp.Body}
}

type flood struct {
	f    *Faults
	left int
}

func (b *flood) Read(p []byte) (int, error) {
	if b.left == 0 {
		return 0, io.EOF
	}
	n := min(len(p), b.left)
	for i := range n {
		p[i] = ' '
	}
	b.left -= n
	b.f.mu.Lock()
	defer b.f.mu.Unlock()
	b.f.mu.flood += n
	return n, nil
}

// spoil has the body of an answer fail while it is read.
func (f Fault) spoil(ctx context.Context, resp *http.Response) {
	whole := resp.Body
	body := io.Reader(whole)
	switch {
	case f.Truncate:
		body = io.MultiReader(io.LimitReader(body, resp.ContentLength/2), broken{})
	case f.Overlong:
		resp.ContentLength = -1
		resp.Header.Del("Content-Length")
		body = io.MultiReader(body, bytes.NewReader(make([]byte, 4096)))
	case f.Flip:
		body = &flip{r: body, at: resp.ContentLength / 2}
	case f.Trickle > 0:
		body = &trickle{r: body, ctx: ctx, each: f.Trickle}
	default:
		return
	}
	resp.Body = struct {
		io.Reader
		io.Closer
	}{body, whole}
}

// pause lets d pass.
func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return ctx.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// broken is a connection that has ended.
type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// trickle gives a kilobyte at a time.
type trickle struct {
	r    io.Reader
	ctx  context.Context
	each time.Duration
}

func (t *trickle) Read(p []byte) (int, error) {
	if err := pause(t.ctx, t.each); err != nil {
		return 0, err
	}
	return t.r.Read(p[:min(len(p), 1<<10)])
}

// flip changes a bit of byte at.
type flip struct {
	r  io.Reader
	at int64
}

func (f *flip) Read(p []byte) (int, error) {
	n, err := f.r.Read(p)
	if f.at >= 0 && f.at < int64(n) {
		p[f.at] ^= 1
	}
	f.at -= int64(n)
	return n, err
}
