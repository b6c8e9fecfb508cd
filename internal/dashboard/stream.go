package dashboard

import (
	"fmt"
	"net/http"
	"time"
)

const (
	// MaxStreams is how many pages may be kept up to date at a time.
	MaxStreams = 8
	// eventEvery is the time between two events of a stream.
	eventEvery = 2 * time.Second
	// writeTimeout is how long a reader may take for an event.
	writeTimeout = 5 * time.Second
)

// stream sends views until the client leaves, the daemon stops, or the client does not
// read.
func (d *Dashboard) stream(w http.ResponseWriter, r *http.Request, names bool) {
	if d.streams.Add(1) > MaxStreams {
		d.streams.Add(-1)
		w.Header().Set("Retry-After", "10")
		http.Error(w, fmt.Sprintf("%d pages are being kept up to date already; close one", MaxStreams), http.StatusServiceUnavailable)
		return
	}
	defer d.streams.Add(-1)
	out := http.NewResponseController(w)
	_ = out.SetReadDeadline(time.Time{}) // its client's departure is noticed by a read, which must not end by itself
	w.Header().Set("Content-Type", "text/event-stream")
	tick := time.NewTicker(eventEvery)
	defer tick.Stop()
	for {
		text, err := d.view(names)
		if err != nil {
			return
		}
		_ = out.SetWriteDeadline(time.Now().Add(writeTimeout))
		if _, err := fmt.Fprintf(w, "data: %s\n\n", text); err != nil {
			return
		}
		if out.Flush() != nil {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-tick.C:
		}
	}
}
