package admin

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"path"
	"strings"
	"time"
)

// DefaultTimeout is how long a Client waits for a sign of life.
const DefaultTimeout = 10 * time.Second

// maxReply is more than any reply has: a page of spaces, or of pins with the
// longest names.
const maxReply = 64 << 20

// maxHeader is more than the header of any reply has.
const maxHeader = 64 << 10

// ErrNoAnswer says that the daemon was silent for longer than the timeout.
var ErrNoAnswer = errors.New("the daemon does not answer: it is starting, stopped or overloaded, or a keeper holds its sockets")

// ErrGone says that the daemon went away in the middle of a call.
var ErrGone = errors.New("disconnected from the daemon")

// ErrForeign says that something else than kvstored answers at the socket.
var ErrForeign = errors.New("the answer is not a kvstored daemon's; use the daemon's admin.socket")

// Client calls a daemon. It is safe for concurrent use.
type Client struct {
	http    *http.Client
	timeout time.Duration
}

// NewClient makes a client of the daemon whose admin.socket is at a path. It connects
// with the first call. timeout 0 is DefaultTimeout.
func NewClient(socket string, timeout time.Duration) *Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}
	return &Client{&http.Client{Transport: &http.Transport{DialContext: dial, DisableCompression: true, MaxResponseHeaderBytes: maxHeader}}, cmp.Or(timeout, DefaultTimeout)}
}

// Close ends the connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Get asks for a reply. The strings are names and values of the query, in turns.
func (c *Client) Get(ctx context.Context, path string, reply any, query ...string) error {
	q := make(url.Values)
	for i := 0; i < len(query); i += 2 {
		if query[i+1] != "" {
			q.Set(query[i], query[i+1])
		}
	}
	if len(q) > 0 {
		path += "?" + q.Encode()
	}
	return c.Do(ctx, http.MethodGet, path, nil, reply)
}

// Do makes a call; request nil is no body. It takes as long as the call does, and
// fails with ErrNoAnswer where the daemon does not answer to anything else either.
// What the daemon refuses is an *Error.
func (c *Client) Do(ctx context.Context, method, path string, request, reply any) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	done := make(chan error, 1)
	go func() { done <- c.exchange(ctx, method, path, request, reply) }()
	for {
		select {
		case err := <-done:
			return err
		case <-time.After(c.timeout / 2):
			if !c.alive(ctx) {
				cancel(ErrNoAnswer)
				if err := <-done; !errors.Is(err, ErrNoAnswer) && !errors.Is(err, context.Canceled) {
					return err // the answer came meanwhile
				}
				return fmt.Errorf("nothing came within %v: %w", c.timeout, ErrNoAnswer)
			}
		}
	}
}

// alive asks for the version while another call waits, for the other half of the timeout. A daemon that refuses to
// tell it is alive.
func (c *Client) alive(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, c.timeout/2)
	defer cancel()
	err := c.exchange(ctx, http.MethodGet, "/v1/version", nil, new(Version))
	var refused *Error
	return err == nil || errors.As(err, &refused)
}

func (c *Client) exchange(ctx context.Context, method, at string, request, reply any) error {
	var body io.Reader = http.NoBody
	if request != nil {
		text, err := json.Marshal(request)
		if err != nil {
			return err
		}
		body = bytes.NewReader(text)
	}
	r, err := http.NewRequestWithContext(ctx, method, "http://kvstored"+at, body)
	if err != nil {
		return err
	}
	resp, err := c.http.Do(r)
	if err != nil {
		return transportError(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxReply))
	if err != nil {
		return transportError(err)
	}
	if resp.StatusCode != http.StatusOK {
		at, _, _ = strings.Cut(at, "?")
		refused := new(Error)
		if json.Unmarshal(text, refused) != nil || refused.Code == "" {
			return fmt.Errorf("%s: status %d: %w", path.Base(at), resp.StatusCode, ErrForeign)
		}
		return fmt.Errorf("%s: %w", path.Base(at), refused)
	}
	if err := json.Unmarshal(text, reply); err != nil {
		return fmt.Errorf("%w: %w", ErrForeign, err)
	}
	return nil
}

// transportError is an error of net/http without the address that it made up.
func transportError(err error) error {
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		err = wrapped.Err
	}
	var network *net.OpError
	switch {
	case errors.As(err, &network) && network.Op == "dial", errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case strings.Contains(err.Error(), "malformed HTTP"):
		return ErrForeign
	}
	return fmt.Errorf("%w: %w", ErrGone, err)
}
