package route

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/kvstored/kvstored/internal/httpd"
)

// connections is how many callers there may be on each listener at a time.
const connections = 1024

// Serve answers on a listener until ctx ends, and closes it. hosts are names under
// which it is asked, besides addresses and localhost.
func (s *Service) Serve(ctx context.Context, l net.Listener, hosts []string) error {
	return httpd.Serve(ctx, l, httpd.Options{Handler: httpd.SameOrigin(s, hosts, "route.hosts"), Connections: connections, Log: s.o.Log})
}

// page is what a person finds who opens the address in a browser.
const page = `kvstored-router

/metrics  numbers for Prometheus
/healthz  200 while the process answers
/readyz   200, and which workers are not heard
`

// ServeHTTP answers one call.
func (s *Service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Method != http.MethodGet || strings.HasPrefix(r.URL.Path, "/v1/"):
	case r.URL.Path == "/":
		_, _ = io.WriteString(w, page)
		return
	case r.URL.Path == "/metrics":
		promhttp.HandlerFor(s.counts.registry, promhttp.HandlerOpts{}).ServeHTTP(w, r)
		return
	case r.URL.Path == "/healthz":
		_, _ = io.WriteString(w, "ok\n")
		return
	case r.URL.Path == "/readyz":
		s.ready(w)
		return
	}
	begun := time.Now()
	path, reply, err := s.answer(w, r)
	code := "ok"
	if err == nil {
		httpd.Reply(w, http.StatusOK, reply)
	} else {
		var status int
		code, status = codeOf(err)
		if errors.Is(err, ErrDenied) || errors.Is(err, ErrTooLarge) || errors.Is(err, ErrBusy) {
			w.Header().Set("Connection", "close")
		}
		httpd.Reply(w, status, failed{code, err.Error(), reply})
	}
	s.counts.calls.WithLabelValues(path, code).Inc()
	s.counts.took.WithLabelValues(path).Observe(time.Since(begun).Seconds())
}

// failed is the answer to a call that was refused, or failed.
type failed struct {
	Code  string `json:"code"`
	Error string `json:"error"`
	State any    `json:"state,omitempty"`
}

// ready says which workers are not heard. The service is ready all the same:
// requests have to go somewhere.
func (s *Service) ready(w http.ResponseWriter) {
	_, _ = io.WriteString(w, "ready\n")
	for _, one := range s.Workers() {
		if !one.Connected {
			fmt.Fprintf(w, "worker %.80q is not heard\n", one.ID)
		}
	}
}

// answer makes the call of a request; path is empty where there is no such call.
func (s *Service) answer(w http.ResponseWriter, r *http.Request) (path string, reply any, err error) {
	var methods []string
	for i := range calls {
		c := &calls[i]
		if c.path != r.URL.Path {
			continue
		}
		if c.method != r.Method {
			methods = append(methods, c.method)
			continue
		}
		if c.changes || s.o.Closed {
			if err := s.allowed(r); err != nil {
				return c.path, nil, err
			}
		}
		body, free, err := s.read(w, r, c.body)
		if err != nil {
			return c.path, nil, err
		}
		defer free()
		reply, err := c.do(s, r, body)
		if err != nil && errors.Is(err, ErrGap) {
			return c.path, reply, err // what is expected goes with it
		}
		if err != nil {
			reply = nil
		}
		return c.path, reply, err
	}
	if methods != nil {
		w.Header().Set("Allow", strings.Join(methods, ", "))
		return "", nil, refuse(ErrMethod, "%s takes %s, not %.20s", r.URL.Path, strings.Join(methods, " or "), r.Method)
	}
	return "", nil, refuse(ErrCall, "%.80q; router/docs/reference.md has them all", r.URL.Path)
}

// allowed is an error unless a request may change something.
func (s *Service) allowed(r *http.Request) error {
	if _, unix := httpd.Conn(r.Context()).(*net.UnixConn); unix {
		return nil
	}
	if s.o.Token == "" {
		return refuse(ErrDenied, "over TCP this takes a token, and there is none; set route.token_file, or call over route.socket")
	}
	given, is := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !is {
		return refuse(ErrDenied, "send the header Authorization: Bearer, and the token in the file of route.token_file")
	}
	want, have := sha256.Sum256([]byte(s.o.Token)), sha256.Sum256([]byte(given)) // of one length
	if subtle.ConstantTimeCompare(want[:], have[:]) != 1 {
		return refuse(ErrDenied, "wrong token; it stands in the file of route.token_file")
	}
	return nil
}

// freeBody is read without a look at the budget of all bodies.
const freeBody = 64 << 10

// bodyCost is how much memory a byte of a body takes, decoded.
const bodyCost = 3

// read reads a body of at most so many bytes. Its share of the budget is given back
// by free.
func (s *Service) read(w http.ResponseWriter, r *http.Request, most int64) (body []byte, free func(), err error) {
	if most == 0 && r.ContentLength != 0 {
		return nil, nil, refuse(ErrRequest, "a GET has no body")
	}
	if r.ContentLength > most {
		return nil, nil, refuse(ErrTooLarge, "a body of %d bytes; at most %d", r.ContentLength, most)
	}
	in := http.MaxBytesReader(w, r.Body, most)
	taken := int64(0)
	free = func() { s.bodies.Release(taken) }
	body = make([]byte, 0, 512)
	for {
		if len(body) == cap(body) {
			next := min(2*cap(body), int(most)+1)
			if need := int64(next) * bodyCost; next > freeBody {
				if !s.bodies.TryAcquire(need - taken) {
					free()
					return nil, nil, refuse(ErrBusy, "bodies of other calls take all memory that there is for them; call again")
				}
				taken = need
			}
			body = append(make([]byte, 0, next), body...)
		}
		n, err := in.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		var large *http.MaxBytesError
		switch {
		case errors.Is(err, io.EOF):
			return body, free, nil
		case errors.As(err, &large):
			free()
			return nil, nil, refuse(ErrTooLarge, "a body of more than %d bytes", most)
		case err != nil:
			free()
			return nil, nil, refuse(ErrRequest, "the body did not come: %w", err)
		}
	}
}
