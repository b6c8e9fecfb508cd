package s3test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// Proxy stands in front of a Server and passes on its requests, with [Faults].
type Proxy struct {
	*Faults
	Endpoint string
	to       string
	client   *http.Transport
	server   *httptest.Server
	end      context.CancelFunc // of the requests under way
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
	p.Faults = newFaults(p.client)
	ctx, end := context.WithCancel(context.Background())
	p.end = end
	p.server = httptest.NewUnstartedServer(p)
	p.server.Config.BaseContext = func(net.Listener) context.Context { return ctx }
	p.server.Start()
	p.Endpoint = p.server.URL
	return p
}

// Stop ends the proxy with the requests under way, and breaks its connections.
func (p *Proxy) Stop() {
	p.end()
	p.server.CloseClientConnections()
	p.server.Close()
	p.client.CloseIdleConnections()
}

// ServeHTTP implements http.Handler.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	out := r.Clone(r.Context())
	out.URL.Scheme, out.URL.Host, out.RequestURI = "http", p.to, "" // Host stays what was signed
	out.Header.Del("Expect")
	resp, err := p.RoundTrip(out)
	if err != nil {
		breakOff(w)
		return
	}
	send(w, resp)
}

// send writes an answer, each piece of the body when it is there. Where the body
// breaks off so does the connection.
func send(w http.ResponseWriter, resp *http.Response) {
	defer resp.Body.Close()
	for name, values := range resp.Header {
		w.Header()[name] = values
	}
	w.WriteHeader(resp.StatusCode)
	if _, err := io.Copy(flushed{w}, resp.Body); err != nil {
		breakOff(w)
	}
}

// flushed sends each write at once.
type flushed struct{ w http.ResponseWriter }

// Write implements io.Writer.
func (f flushed) Write(p []byte) (int, error) {
	n, err := f.w.Write(p)
	if err == nil {
		err = http.NewResponseController(f.w).Flush()
	}
	return n, err
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
