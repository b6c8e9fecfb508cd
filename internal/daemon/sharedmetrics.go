package daemon

import (
	"bytes"
	"net/http"
	"time"
)

// metricsPause is the least from one making of the metrics to the next: it takes a
// processor for some milliseconds, and every user of the machine may ask.
const metricsPause = 50 * time.Millisecond

// sharedMetrics answers with what a handler makes of the metrics, once for all who wait for
// it: no answer is older than its request, and however many ask, one at a time is made.
type sharedMetrics struct {
	handler http.Handler
	turn    chan struct{} // of capacity 1; who has it may use the rest
	begun   time.Time     // when the last answer began to be made
	last    *answer
}

// answer is a ResponseWriter that keeps all writes. Once it is made it is not
// changed any more.
type answer struct {
	header http.Header
	code   int
	body   bytes.Buffer
}

func (a *answer) Header() http.Header         { return a.header }
func (a *answer) WriteHeader(code int)        { a.code = code }
func (a *answer) Write(p []byte) (int, error) { return a.body.Write(p) }

func newSharedMetrics(h http.Handler) *sharedMetrics {
	return &sharedMetrics{handler: h, turn: make(chan struct{}, 1)}
}

// ServeHTTP implements http.Handler.
func (p *sharedMetrics) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	came := time.Now()
	select {
	case p.turn <- struct{}{}:
	case <-r.Context().Done():
		return
	}
	if !p.begun.After(came) && !p.make(r) {
		<-p.turn
		return
	}
	a := p.last
	<-p.turn
	for name, values := range a.header {
		w.Header()[name] = values
	}
	w.WriteHeader(a.code)
	_, _ = w.Write(a.body.Bytes()) // a client that has left is told nothing
}

// make makes the answer anew, for all clients in the same form. It is false where its
// client leaves before it begins.
func (p *sharedMetrics) make(r *http.Request) bool {
	if wait := metricsPause - time.Since(p.begun); wait > 0 {
		select {
		case <-time.After(wait):
		case <-r.Context().Done():
			return false
		}
	}
	plain := r.Clone(r.Context())
	plain.Header = nil
	p.begun = time.Now()
	p.last = &answer{header: make(http.Header), code: http.StatusOK}
	p.handler.ServeHTTP(p.last, plain)
	return true
}
