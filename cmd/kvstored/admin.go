package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// listenAdmin takes the admin address, before anything is served.
func (d *daemon) listenAdmin() (err error) {
	if d.cfg.Admin.Listen == "" {
		return nil
	}
	d.admin, err = listenTCP("admin.listen", d.cfg.Admin.Listen)
	return err
}

// adminIndex is what a person finds who opens the admin address in a browser.
const adminIndex = `kvstored %s

/metrics  numbers for Prometheus
/healthz  200 while the process answers
/readyz   200 once everything on disk has been found again, and then which tier is off and why

More: kvstored stats
`

// serveAdmin answers metrics and health over HTTP until ctx ends.
func (d *daemon) serveAdmin(ctx context.Context) error {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintf(w, adminIndex, version()) })
	mux.Handle("GET /metrics", promhttp.HandlerFor(d.metrics.registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if err := d.ready(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ready")
		if err := d.stack.Trouble(); err != nil { // whoever asks is served from DRAM
			fmt.Fprintln(w, err)
		}
	})
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	defer context.AfterFunc(ctx, func() { _ = srv.Close() })()
	if err := srv.Serve(d.admin); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("admin: %w", err)
	}
	return nil
}
