package admin

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kvstored/kvstored/internal/test/pipe"
)

const patience = 10 * time.Second

// slowDaemon never answers GET /v1/version, and any other call once that was asked,
// if it answers that at all. Its client asks for the version after half of its patience.
func slowDaemon(t *testing.T, answers bool, patience time.Duration) *Client {
	t.Helper()
	l := pipe.Listen("s")
	asked := make(chan struct{})
	ask := sync.OnceFunc(func() { close(asked) })
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // behind it net/http looks whether the client leaves
		if r.URL.Path == "/v1/version" {
			ask()
		} else if <-asked; answers {
			_, _ = w.Write([]byte(`{"chunks": 3}`))
			return
		}
		<-r.Context().Done()
	})}
	go func() { _ = srv.Serve(l) }() // it ends with Close
	c := NewClient("s", patience)
	c.http.Transport.(*http.Transport).DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) { return l.Dial(ctx) }
	t.Cleanup(func() {
		c.Close()
		srv.Close()
	})
	return c
}

// TestAnswerBesidesVersion: a reply that comes while the client asks whether the
// daemon lives counts, though that question is not answered.
func TestAnswerBesidesVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun, r := time.Now(), Chunks{}
		err := slowDaemon(t, true, patience).Do(t.Context(), "POST", "/v1/claims", None{}, &r)
		if took := time.Since(begun); err != nil || r.Chunks != 3 || took != patience { // the question has its time
			t.Errorf("%+v, %v after %v", r, err, took)
		}
	})
}

// TestNoAnswer: a daemon that answers neither is silent.
func TestNoAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		err := slowDaemon(t, false, patience).Do(t.Context(), "POST", "/v1/claims", None{}, new(Chunks))
		if took := time.Since(begun); !errors.Is(err, ErrNoAnswer) || took != patience {
			t.Errorf("%v after %v", err, took)
		}
	})
}
