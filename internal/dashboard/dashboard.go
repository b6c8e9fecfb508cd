package dashboard

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kvstored/kvstored/internal/admin"
	"github.com/kvstored/kvstored/internal/chart"
	"github.com/kvstored/kvstored/internal/httpd"
	"github.com/kvstored/kvstored/internal/server"
	"github.com/kvstored/kvstored/tier"
)

// Path is where the page is.
const Path = admin.PagesPath

// policy lets the page load what this package serves, and nothing else.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

//go:embed static
var files embed.FS

// Numbers is what the daemon counts.
type Numbers struct {
	Version string
	Uptime  time.Duration
	Advice  string // one sentence about misses; may be ""
	Server  server.Stats
	Tiers   map[tier.Place]tier.Stats
}

// Options of a Dashboard.
type Options struct {
	Numbers func() Numbers
	API     *admin.API
}

// Dashboard makes the pages. It is safe for concurrent use.
type Dashboard struct {
	o       Options
	streams atomic.Int64
	past    past
	views   [2]lastView // without names, and with them
	static  http.Handler
}

// lastView is what streams of a kind are sent.
type lastView struct {
	sync.Mutex
	at   time.Time
	text []byte
}

// New makes a Dashboard; Run samples for it.
func New(o Options) *Dashboard {
	static, err := fs.Sub(files, "static")
	if err != nil {
		panic(err) // of a name that stands here
	}
	return &Dashboard{o: o, static: http.StripPrefix(Path, http.FileServerFS(static))}
}

// Run samples until ctx ends.
func (d *Dashboard) Run(ctx context.Context) error {
	tick := time.NewTicker(sampleEvery)
	defer tick.Stop()
	for {
		n := d.o.Numbers()
		d.past.add(sampleOf(&n, time.Now()))
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// Handler serves the page below Path; with names also who holds what, and the prefixes
// that are stored.
func (d *Dashboard) Handler(names bool) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+Path+"events", func(w http.ResponseWriter, r *http.Request) { d.stream(w, r, names) })
	mux.HandleFunc("GET "+Path+"chart.css", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/css; charset=utf-8")
		_, _ = w.Write([]byte(chart.Style())) // a client that has left is told nothing
	})
	mux.HandleFunc("GET "+Path+"tree", func(w http.ResponseWriter, r *http.Request) {
		if !names {
			http.Error(w, "set admin.dashboard to see prefixes here, or look at it on admin.socket", http.StatusForbidden)
			return
		}
		d.tree(w, r)
	})
	mux.Handle("GET "+Path, d.static)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-store")
		mux.ServeHTTP(w, r)
	})
}

// prefixesShown is how many prefixes the page draws.
const prefixesShown = "1500"

// tree answers with the largest prefixes below one.
func (d *Dashboard) tree(w http.ResponseWriter, r *http.Request) {
	q := admin.TreeRequest{Under: r.URL.Query().Get("under"), Space: r.URL.Query().Get("space"), Limit: prefixesShown}
	reply, err := d.o.API.Tree(r.Context(), &q)
	var refused *admin.Error
	switch {
	case errors.As(err, &refused):
		http.Error(w, refused.Text, http.StatusNotFound)
	case err != nil:
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
	default:
		httpd.Reply(w, http.StatusOK, reply)
	}
}

// view is what a page shows now, as JSON; one that is younger than a second is shared.
func (d *Dashboard) view(names bool) ([]byte, error) {
	of := &d.views[0]
	if names {
		of = &d.views[1]
	}
	of.Lock()
	defer of.Unlock()
	if of.text != nil && time.Since(of.at) < time.Second {
		return of.text, nil
	}
	text, err := json.Marshal(d.look(names))
	if err == nil {
		of.at, of.text = time.Now(), text
	}
	return text, err
}
