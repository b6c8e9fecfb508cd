package admin

import (
	"errors"
	"net"
	"net/http"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// slowDaemon never answers GET /v1/version, and any other call once that was asked,
// if it answers that at all. Its client asks for the version after patience.
func slowDaemon(t *testing.T, answers bool, patience time.Duration) *Client {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	asked := make(chan struct{})
	ask := sync.OnceFunc(func() { close(asked) })
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/version" {
			ask()
		} else if <-asked; answers {
			_, _ = w.Write([]byte(`{"chunks": 3}`))
			return
		}
		<-r.Context().Done()
	})}
	go func() { _ = srv.Serve(l) }() // it ends with Close
	c := NewClient(path, patience)
	t.Cleanup(func() {
		c.Close()
		srv.Close()
	})
	return c
}

// TestAnswerBesidesVersion: a reply that comes while the client asks whether the
// daemon lives counts, though that question is not answered.
func TestAnswerBesidesVersion(t *testing.T) {
	var r Chunks
	var err error
	for _, patience := range []time.Duration{100 * time.Millisecond, time.Second, 10 * time.Second} { // a busy machine may miss the first
		if err = slowDaemon(t, true, patience).Do(t.Context(), "POST", "/v1/revoke", None{}, &r); !errors.Is(err, ErrNoAnswer) {
			break
		}
	}
	if err != nil || r.Chunks != 3 {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestNoAnswer: a daemon that answers neither is silent.
func TestNoAnswer(t *testing.T) {
	if err := slowDaemon(t, false, 100*time.Millisecond).Do(t.Context(), "POST", "/v1/revoke", None{}, new(Chunks)); !errors.Is(err, ErrNoAnswer) {
		t.Error(err)
	}
}
