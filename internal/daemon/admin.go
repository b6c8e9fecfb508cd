package daemon

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/rs/zerolog"

	"github.com/kvstored/kvstored/internal/version"
)

// listenAdmin takes the admin address, before anything is served.
func (d *Daemon) listenAdmin() (err error) {
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
func (d *Daemon) serveAdmin(ctx context.Context) error {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintf(w, adminIndex, version.String()) })
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
	srv := d.adminServer(mux)
	defer context.AfterFunc(ctx, func() { _ = srv.Close() })()
	if err := srv.Serve(d.admin); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("admin: %w", err)
	}
	return nil
}

const (
	// adminConnections is for probes and a few scrapers.
	adminConnections = 256
	adminHeaderBytes = 16 << 10
)

// adminServer bounds sizes and times of requests; its own complaints,
// such as of a lack of descriptors, are logged once a minute.
func (d *Daemon) adminServer(h http.Handler) *http.Server {
	complaints := d.log.Sample(&zerolog.BurstSampler{Burst: 1, Period: time.Minute}).With().Str("component", "admin").Logger()
	srv := &http.Server{
		Handler: h, MaxHeaderBytes: adminHeaderBytes,
		ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 10 * time.Second,
		WriteTimeout: 30 * time.Second, IdleTimeout: 2 * time.Minute,
		ErrorLog: log.New(complaint{complaints}, "", 0),
	}
	newConnLimit(adminConnections).wrap(srv)
	return srv
}

// complaint writes lines of net/http to the log.
type complaint struct{ log zerolog.Logger }

func (c complaint) Write(line []byte) (int, error) {
	c.log.Warn().Msg(strings.TrimSpace(string(line)))
	return len(line), nil
}
