package daemon

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestMetricsAreMadeOnce: however many ask, the metrics are made one at a time and with a
// pause between, and no answer is older than its request.
func TestMetricsAreMadeOnce(t *testing.T) {
	for _, pause := range []time.Duration{metricsPause, pagePause} {
		synctest.Test(t, func(t *testing.T) { madeOnce(t, pause) })
	}
}

func madeOnce(t *testing.T, pause time.Duration) {
	made, making := 0, 0
	p := newShared(pause, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if making++; making > 1 {
			t.Error("two are made at a time")
		}
		at := time.Now()
		time.Sleep(10 * time.Millisecond)
		making--
		made++
		if r.Header.Get("Accept-Encoding") != "" {
			t.Error("made for one client only")
		}
		w.Header().Set("X-Kind", "metrics")
		w.WriteHeader(http.StatusAccepted)
		fmt.Fprint(w, at.UnixNano())
	}))
	ask := func(ctx context.Context) *httptest.ResponseRecorder {
		came := time.Now().UnixNano()
		w, r := httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodGet, "/metrics", nil)
		r.Header.Set("Accept-Encoding", "gzip")
		p.ServeHTTP(w, r)
		var at int64
		if _, err := fmt.Sscan(w.Body.String(), &at); ctx.Err() == nil && (err != nil || at < came) {
			t.Errorf("asked at %d, answered with what was at %q", came, w.Body)
		}
		return w
	}
	const clients, span = 100, 10 * time.Second
	begun := time.Now()
	var all sync.WaitGroup
	for i := range clients {
		all.Go(func() {
			for time.Since(begun) < span {
				if w := ask(t.Context()); w.Code != http.StatusAccepted || w.Header().Get("X-Kind") != "metrics" {
					t.Errorf("%d, %v", w.Code, w.Header())
				}
				time.Sleep(time.Duration(i) * time.Millisecond)
			}
		})
	}
	all.Wait()
	if most := int(span/pause) + 2; made > most || made < most/2 {
		t.Errorf("made %d times in %v, at most %d are right", made, span, most)
	}
	gone, leave := context.WithCancel(t.Context())
	leave()
	before := made
	ask(gone)
	ask(gone)
	if ask(t.Context()); made > before+2 {
		t.Errorf("made %d times for one client that is there", made-before)
	}
}

// TestMetricsAfterPanic: no caller gets an answer whose making panics, and the next is made.
func TestMetricsAfterPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		made := 0
		p := newShared(metricsPause, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			made++
			fmt.Fprint(w, "answer ", made)
			time.Sleep(time.Second)
			if made == 1 {
				panic("broken")
			}
		}))
		ask := func() string {
			defer func() { _ = recover() }() // as net/http does
			w := httptest.NewRecorder()
			p.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
			return w.Body.String()
		}
		var both sync.WaitGroup
		both.Go(func() { ask() })
		synctest.Wait()
		both.Go(func() {
			if got := ask(); got != "answer 2" {
				t.Errorf("behind one that panics: %q", got)
			}
		})
		both.Wait()
	})
}
