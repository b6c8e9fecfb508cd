package httpd

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/rs/zerolog"
)

// The bounds of every listener. docs/guarantees.md has them.
const (
	// HeaderBytes is the most that the header of a request may have, give or take
	// the 4 KiB that net/http adds.
	HeaderBytes = 16 << 10
	// socketBytes is asked for as buffers of a connection in the kernel, which would
	// grow to some MiB for a client that asks on and reads nothing.
	socketBytes = 32 << 10
	// requestTimeout is how long a client has to send a request.
	requestTimeout = 10 * time.Second
	// ReplyTimeout is how long a reply may take: to be made and read, unless a
	// handler that takes long sets the deadline itself.
	ReplyTimeout = 30 * time.Second
	// restTimeout is how long a connection may rest between two requests.
	restTimeout = 2 * time.Minute
	// endTimeout is how long the end waits for replies that are being made.
	endTimeout = time.Second
)

// Options of Serve.
type Options struct {
	Handler     http.Handler // the context of a request ends with its client and with Serve's
	Connections int          // at most; one more takes the place of the one that has been idle the longest
	Log         zerolog.Logger
}

// Serve answers requests on l until ctx ends or accepting fails. It returns when
// every handler has, and closes l.
func Serve(ctx context.Context, l net.Listener, o Options) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// Complaints of net/http, such as of a lack of descriptors: one a minute.
	complaints := o.Log.Sample(&zerolog.BurstSampler{Burst: 1, Period: time.Minute})
	srv := &http.Server{
		Handler: o.Handler, MaxHeaderBytes: HeaderBytes,
		ReadHeaderTimeout: requestTimeout, ReadTimeout: requestTimeout,
		WriteTimeout: ReplyTimeout, IdleTimeout: restTimeout,
		BaseContext: func(net.Listener) context.Context { return ctx },
		ErrorLog:    log.New(complaint{complaints}, "", 0),
	}
	conns := newConnLimit(o.Connections)
	conns.wrap(srv)
	stop := context.AfterFunc(ctx, func() {
		select {
		case <-conns.drained():
		case <-time.After(endTimeout):
		}
		_ = srv.Close()
	})
	err := srv.Serve(l)
	if stop() { // accepting has failed; what is being answered ends
		cancel()
		_ = srv.Close()
	}
	<-conns.drained()
	if !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("accept on %v: %w", l.Addr(), err)
	}
	return nil
}

// complaint writes lines of net/http to the log.
type complaint struct{ log zerolog.Logger }

func (c complaint) Write(line []byte) (int, error) {
	c.log.Warn().Msg(strings.TrimSpace(string(line)))
	return len(line), nil
}

// Decode reads a request, which is one JSON object without any name that the call
// does not know. No body is an empty object.
func Decode(request []byte, q any) error {
	switch string(bytes.TrimSpace(request)) {
	case "":
		return nil
	case "null": // which Decode takes for any type
		return errors.New("the request is no JSON object but null")
	}
	d := json.NewDecoder(bytes.NewReader(request))
	d.DisallowUnknownFields()
	var (
		wrong  *json.UnmarshalTypeError
		syntax *json.SyntaxError
	)
	switch err := d.Decode(q); {
	case errors.As(err, &wrong) && wrong.Field == "":
		return fmt.Errorf("the request is no JSON object but a %s", wrong.Value)
	case errors.As(err, &wrong):
		return fmt.Errorf("%q does not take a %s", wrong.Field, wrong.Value)
	case errors.As(err, &syntax), errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("the request is no JSON: %w", err)
	case err != nil: // a name that is not known; it has no type of its own
		return errors.New(strings.TrimPrefix(err.Error(), "json: "))
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows the JSON object")
	}
	return nil
}

// Reply writes a reply as JSON. A client that does not read it is waited for no
// longer than any other.
func Reply(w http.ResponseWriter, status int, reply any) {
	body, err := json.Marshal(reply)
	if err != nil { // of plain data
		status, body = http.StatusInternalServerError, []byte(`{"code":"internal","error":"the reply is no JSON","do":"report it"}`)
	}
	out := http.NewResponseController(w)
	_ = out.SetWriteDeadline(time.Now().Add(ReplyTimeout))
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(slices.Concat(body, []byte("\n"))) // a client that has left is told nothing
	_ = out.Flush()
}

// SameOrigin refuses requests that a page of another origin may have made with the
// browser of a user who reaches the listener. By DNS rebinding such a page has a
// name of its own point to the listener's address; the Host header still has that
// name. An address written as numbers is always let through, since a page cannot
// give it another meaning; so are localhost and hosts, names without a port in
// lower case, which stand in the
// configuration under key ("" is nowhere). An Origin header has to name the same host and port as Host.
func SameOrigin(h http.Handler, hosts []string, key string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !ownHost(r.Host, hosts) {
			text := fmt.Sprintf("the host %.80q is none of this listener's; ask by its address or localhost", r.Host)
			if key != "" {
				text += ", or add the name to " + key
			}
			refuse(w, text)
			return
		}
		for _, origin := range r.Header.Values("Origin") {
			if !sameHost(origin, r.Host) {
				refuse(w, fmt.Sprintf("the origin %.80q is foreign; pages of other origins may not read this", origin))
				return
			}
		}
		h.ServeHTTP(w, r)
	})
}

func refuse(w http.ResponseWriter, text string) {
	w.Header().Set("Connection", "close")
	http.Error(w, text, http.StatusForbidden)
}

// ownHost tells whether a Host header may be meant for this listener. Only a
// client of HTTP/1.0, which is no browser, leaves it out.
func ownHost(host string, hosts []string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	} else {
		host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if host == "" || host == "localhost" || slices.Contains(hosts, host) {
		return true
	}
	_, err := netip.ParseAddr(host)
	return err == nil
}

// sameHost tells whether an origin is that of the host and port in a Host header.
func sameHost(origin, host string) bool {
	u, err := url.Parse(origin)
	return err == nil && u.Host != "" && strings.EqualFold(u.Host, host)
}
