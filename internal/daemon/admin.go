package daemon

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/kvstored/kvstored/internal/admin"
	"github.com/kvstored/kvstored/internal/httpd"
	"github.com/kvstored/kvstored/internal/human"
	"github.com/kvstored/kvstored/tier"
)

// views are the two ways to look at the daemon: the calls of administrators, and the
// page in a browser.
func (d *Daemon) views() (*admin.API, *admin.Dashboard) {
	api := admin.New(admin.Options{
		Stack: d.stack, Server: d.server, Sample: d.sample,
		Config: func() (admin.Config, error) { return d.reloads.stats(true) },
		Log:    d.log.With().Str("component", "admin").Logger(),
	})
	board := admin.NewDashboard(admin.DashboardOptions{
		Stats: func() ([]byte, error) {
			st := d.stats()
			st.Config = admin.Config{} // is no number
			return json.Marshal(st)
		},
		Sample: d.sampleOfNow, Answers: api.Answers(),
	})
	api.SetPages(board.Handler(true))
	return api, board
}

// sampleOfNow is the counters that the page draws over time.
func (d *Daemon) sampleOfNow() admin.Sample {
	st := d.stats() // also so that health knows since when
	s := admin.Sample{AskedTokens: st.Server.AskedTokens, StoredBytes: st.Server.StoredBytes}
	for p := range tier.Place(tier.Places) {
		t := st.Store.Tiers[p]
		s.HitTokens[p], s.ReadBytes[p], s.WrittenBytes[p] = st.Server.HitTokens[p], t.GetBytes, t.PutBytes
	}
	return s
}

// serveAdmin answers administrators until ctx ends.
func (d *Daemon) serveAdmin(ctx context.Context, api *admin.API) error {
	if err := api.Serve(ctx, d.admin.Listener); err != nil {
		return fmt.Errorf("admin.socket: %w", err)
	}
	return nil
}

// pageConnections is for probes and a few scrapers.
const pageConnections = 256

// listenPages takes the address of metrics and health, before anything is served.
func (d *Daemon) listenPages() (err error) {
	if d.cfg.Admin.Listen == "" {
		return nil
	}
	d.pages, err = d.from.listenTCP("admin.listen", d.cfg.Admin.Listen)
	return err
}

// pageIndex is what a person finds who opens the address in a browser.
const pageIndex = `kvstored %s

/dashboard/  hits, misses and tiers, live
/metrics     numbers for Prometheus
/healthz     200 while the process answers
/readyz      200 once DRAM has begun and everything on disk has been found again, and then what is wrong

More: kvstored stats
`

// servePages answers metrics and health over HTTP until ctx ends. These pages change
// nothing, and never will: what does is on admin.socket.
func (d *Daemon) servePages(ctx context.Context, board *admin.Dashboard) error {
	mux := http.NewServeMux()
	mux.Handle(admin.PagesPath, board.Handler(d.cfg.Admin.Dashboard))
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintf(w, pageIndex, human.VersionText()) })
	mux.Handle("GET /metrics", newSharedMetrics(promhttp.HandlerFor(d.metrics.registry, promhttp.HandlerOpts{})))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		switch state, text := d.healthNow(); state {
		case "ready":
			fmt.Fprintln(w, text)
		case "degraded": // engines are served from DRAM
			fmt.Fprintf(w, "ready\n%s\n", text)
		default:
			http.Error(w, text, http.StatusServiceUnavailable)
		}
	})
	err := httpd.Serve(ctx, d.pages, httpd.Options{
		Handler: httpd.SameOrigin(mux, d.cfg.Admin.OwnHosts(), "admin.hosts"), Connections: pageConnections,
		Log: d.log.With().Str("component", "pages").Logger(),
	})
	if err != nil {
		return fmt.Errorf("admin.listen: %w", err)
	}
	return nil
}
