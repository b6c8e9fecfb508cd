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
// if it answers that at all.
func slowDaemon(t *testing.T, answers bool) *Client {
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
	c := NewClient(path, 100*time.Millisecond)
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
	if err := slowDaemon(t, true).Do(t.Context(), "POST", "/v1/revoke", None{}, &r); err != nil || r.Chunks != 3 {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestNoAnswer: a daemon that answers neither is silent.
func TestNoAnswer(t *testing.T) {
	if err := slowDaemon(t, false).Do(t.Context(), "POST", "/v1/revoke", None{}, new(Chunks)); !errors.Is(err, ErrNoAnswer) {
		t.Error(err)
	}
}
