package s3test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// Fault is what happens to one request. The zero Fault lets it pass.
type Fault struct {
	Delay    time.Duration // let this much time pass first
	Status   int           // answer this and ask nobody; 404 is a stale one
	Code     string        // with this code in the body
	Reset    bool          // break the connection instead of answering
	Truncate bool          // break it in the middle of the body
	Overlong bool          // send a body of unannounced length, longer than it was
	Trickle  time.Duration // let this much time pass after each kilobyte of the body
	Flip     bool          // change one bit of the body
}

// Rule decides what happens to a request. It is called from any goroutine.
type Rule func(r *http.Request) Fault

// Proxy stands in front of a Server.
type Proxy struct {
	Endpoint string
	to       string
	client   *http.Transport
	server   *httptest.Server

	mu struct {
		sync.Mutex
		rule  Rule
		count map[string]int // requests by method
	}
}

// RunProxy starts a proxy for one test.
func RunProxy(t testing.TB, s *Server) *Proxy {
	t.Helper()
	p := NewProxy(s)
	t.Cleanup(p.Stop)
	return p
}

// NewProxy starts a proxy. Stop it.
func NewProxy(s *Server) *Proxy {
	p := &Proxy{to: strings.TrimPrefix(s.Endpoint, "http://"), client: &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 64}}
	p.mu.count = make(map[string]int)
	p.server = httptest.NewServer(p)
	p.Endpoint = p.server.URL
	return p
}

// Stop ends the proxy and breaks its connections.
func (p *Proxy) Stop() {
	p.server.CloseClientConnections()
	p.server.Close()
	p.client.CloseIdleConnections()
}

// Set makes rule the one for requests from now on; nil lets all pass.
func (p *Proxy) Set(rule Rule) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.rule = rule
}

// Count is how many requests of a method came by so far.
func (p *Proxy) Count(method string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.count[method]
}

// fault counts a request and decides what happens to it.
func (p *Proxy) fault(r *http.Request) Fault {
	p.mu.Lock()
	p.mu.count[r.Method]++
	rule := p.mu.rule
	p.mu.Unlock()
	if rule == nil {
		return Fault{}
	}
	return rule(r)
}

func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f := p.fault(r)
	if f.Delay > 0 {
		timer := time.NewTimer(f.Delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-r.Context().Done():
			return
		}
	}
	switch {
	case f.Reset:
		breakOff(w)
	case f.Status != 0:
		w.Header().Set("Content-Type", "application/xml")
		w.WriteHeader(f.Status)
		if r.Method != http.MethodHead {
			fmt.Fprintf(w, "<Error><Code>%s</Code><Message>said to %s</Message></Error>", f.Code, r.Header.Get("Authorization"))
		}
	default:
		p.forward(w, r, f)
	}
}

// breakOff resets the connection.
func breakOff(w http.ResponseWriter) {
	c, _, err := w.(http.Hijacker).Hijack()
	if err != nil {
		return
	}
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	c.Close()
}

func (p *Proxy) forward(w http.ResponseWriter, r *http.Request, f Fault) {
	out := r.Clone(r.Context())
	out.URL.Scheme, out.URL.Host, out.RequestURI = "http", p.to, "" // Host stays what was signed
	out.Header.Del("Expect")
	resp, err := p.client.RoundTrip(out)
	if err != nil {
		breakOff(w)
		return
	}
	defer resp.Body.Close()
	for name, values := range resp.Header {
		w.Header()[name] = values
	}
	if f.Overlong {
		w.Header().Del("Content-Length")
	}
	w.WriteHeader(resp.StatusCode)
	p.body(w, resp, f)
}

func (p *Proxy) body(w http.ResponseWriter, resp *http.Response, f Fault) {
	body := io.Reader(resp.Body)
	if f.Truncate {
		_, _ = io.CopyN(w, body, resp.ContentLength/2)
		_ = http.NewResponseController(w).Flush()
		breakOff(w)
		return
	}
	if f.Flip {
		body = &flip{r: body, at: resp.ContentLength / 2}
	}
	for f.Trickle > 0 {
		if n, err := io.CopyN(w, body, 1<<10); n == 0 || err != nil {
			return
		}
		if http.NewResponseController(w).Flush() != nil {
			return
		}
		time.Sleep(f.Trickle)
	}
	_, _ = io.Copy(w, body)
	if f.Overlong {
		_, _ = w.Write(make([]byte, 4096))
	}
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
