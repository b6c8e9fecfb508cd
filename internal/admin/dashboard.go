package admin

import (
	"context"
	"embed"
	"io/fs"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/kvstored/kvstored/internal/base"
	"github.com/kvstored/kvstored/internal/httpd"
	"github.com/kvstored/kvstored/tier"
)

// contentPolicy lets the page load what this package serves, and nothing else.
const contentPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

//go:embed static
var files embed.FS

// DashboardOptions of a Dashboard.
type DashboardOptions struct {
	Stats   http.Handler  // as JSON, however many ask
	Sample  func() Sample // of now
	Answers http.Handler  // of calls with names; see [API.Answers]
}

// Dashboard serves the page. It is safe for concurrent use.
type Dashboard struct {
	o      DashboardOptions
	past   past
	static http.Handler
}

// NewDashboard makes a Dashboard; Run samples for it.
func NewDashboard(o DashboardOptions) *Dashboard {
	static, err := fs.Sub(files, "static")
	if err != nil {
		panic(err) // of a name that stands here
	}
	return &Dashboard{o: o, static: http.StripPrefix(PagesPath, http.FileServerFS(static))}
}

// Run samples until ctx ends.
func (d *Dashboard) Run(ctx context.Context) error {
	for {
		d.past.add(time.Now(), d.o.Sample())
		if base.Sleep(ctx, sampleEvery) != nil {
			return nil
		}
	}
}

// named are the calls whose answers name clients, models or prefixes.
var named = []string{"GET clients", "GET leases", "GET claims", "GET prefixes", "POST why"}

// Handler serves the page below PagesPath, and what it asks for; with names also who holds
// what, and the prefixes that are stored.
func (d *Dashboard) Handler(names bool) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET "+PagesPath+"stats", d.o.Stats)
	mux.HandleFunc("GET "+PagesPath+"past", func(w http.ResponseWriter, _ *http.Request) {
		httpd.Reply(w, http.StatusOK, hour{names, d.past.steps(time.Now(), stepsShown)})
	})
	answers := http.StripPrefix(PagesPath[:len(PagesPath)-1], d.o.Answers)
	if !names {
		answers = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "set admin.dashboard to see names here, or look at them on admin.socket", http.StatusForbidden)
		})
	}
	for _, call := range named {
		method, name, _ := strings.Cut(call, " ")
		mux.Handle(method+" "+PagesPath+"v1/"+name, answers)
	}
	mux.Handle("GET "+PagesPath, d.static)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", contentPolicy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-store")
		mux.ServeHTTP(w, r)
	})
}

const (
	sampleEvery = 2 * time.Second
	sampleCount = 1800 // an hour
	stepsShown  = 60
)

// Sample is the counters at a moment; tiers are in order, the nearest first.
type Sample struct {
	AgeSeconds   float64             `json:"age_seconds"`
	AskedTokens  uint64              `json:"asked_tokens"`
	HitTokens    [tier.Places]uint64 `json:"hit_tokens"`
	StoredBytes  uint64              `json:"stored_bytes"` // by clients
	ReadBytes    [tier.Places]uint64 `json:"read_bytes"`   // from each tier
	WrittenBytes [tier.Places]uint64 `json:"written_bytes"`
}

// hour is the last one.
type hour struct {
	Names   bool     `json:"names"`   // whether calls with names are answered
	Samples []Sample `json:"samples"` // oldest first
}

// past is the samples of the last hour.
type past struct {
	mu   sync.Mutex
	ring [sampleCount]struct {
		at time.Time
		Sample
	}
	n int // added, ever
}

func (p *past) add(at time.Time, s Sample) {
	p.mu.Lock()
	defer p.mu.Unlock()
	of := &p.ring[p.n%sampleCount]
	of.at, of.Sample = at, s
	p.n++
}

// steps lists at most so many steps between moments that follow each other, oldest first,
// with as much time in each.
func (p *past) steps(now time.Time, most int) []Sample {
	p.mu.Lock()
	defer p.mu.Unlock()
	have := min(p.n, sampleCount)
	every := max(1, (have+most-1)/most)
	out := []Sample{}
	for i := p.n - have; i < p.n; i++ {
		if (p.n-1-i)%every == 0 {
			of := p.ring[i%sampleCount]
			of.AgeSeconds = now.Sub(of.at).Seconds()
			out = append(out, of.Sample)
		}
	}
	return out
}
