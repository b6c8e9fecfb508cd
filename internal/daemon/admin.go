package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/rs/zerolog"

	"github.com/kvstored/kvstored/internal/admin"
	"github.com/kvstored/kvstored/internal/base"
	"github.com/kvstored/kvstored/internal/explain"
	"github.com/kvstored/kvstored/internal/httpd"
	"github.com/kvstored/kvstored/internal/human"
	"github.com/kvstored/kvstored/internal/store"
	"github.com/kvstored/kvstored/tier"
)

// views are the two ways to look at the daemon: the calls of administrators, and the
// page in a browser.
func (d *Daemon) views() (*admin.API, *admin.Dashboard) {
	api := admin.New(admin.Options{
		Store: d.store, Server: d.server, Sample: d.sample,
		Config: func() (admin.Config, error) { return d.reloads.stats(true) },
		Log:    d.log.With().Str("component", "admin").Logger(),
	})
	board := admin.NewDashboard(admin.DashboardOptions{
		Stats: newShared(pagePause, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			st := d.stats()
			st.Config = admin.Config{} // is no number
			httpd.Reply(w, http.StatusOK, st)
		})),
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
	mux.Handle("GET /metrics", newShared(metricsPause, promhttp.HandlerFor(d.metrics.registry, promhttp.HandlerOpts{})))
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

// health follows the troubles of the daemon.
type health struct {
	full    atomic.Bool // the last chunk was refused
	mu      sync.Mutex
	refused uint64    // chunks for which the disk had no room
	puts    uint64    // chunks that it took
	state   string    // that was told last: ready, not ready or degraded; "" is not ready
	since   time.Time // it was told first
}

// trouble is something that the daemon does without, or waits for.
type trouble struct {
	why error
	do  string // about it
}

var (
	errFull = errors.New("the disk tier has no room for a chunk")
	// remedies are for tiers that are in trouble.
	remedies = [tier.Places]string{
		tier.Disk:   "Repair its device or folder: the tier comes back by itself",
		tier.Remote: "Repair the bucket, the network or the credentials: the tier comes back by itself",
	}
)

// look notes whether the disk has room.
func (h *health) look(s *store.Stats) {
	refused, puts := s.Written[tier.Disk].Dropped[explain.NoRoom].Chunks, s.Tiers[tier.Disk].Puts
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case refused > h.refused:
		h.full.Store(true)
	case puts > h.puts:
		h.full.Store(false)
	}
	h.refused, h.puts = refused, puts
}

// tell is one line: the troubles, their beginning, and the remedies. Changed is whether another
// state was told before.
func (h *health) tell(now time.Time, state string, list []trouble) (text, before string, changed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	before = cmp.Or(h.state, "not ready") // as which a daemon begins
	if h.state != state {
		h.state, h.since = state, now
	}
	var why, do []string
	for _, t := range list {
		why = append(why, strings.ReplaceAll(t.why.Error(), "\n", "; "))
		if !slices.Contains(do, t.do) {
			do = append(do, t.do)
		}
	}
	if why == nil {
		return state, before, before != state
	}
	form := "15:04"
	if now.Sub(h.since) > 12*time.Hour {
		form = "2006-01-02 15:04"
	}
	return state + ": " + strings.Join(why, "; ") + ", since " + h.since.Format(form) + ". " + strings.Join(do, ". "), before, before != state
}

// troubles is what the daemon does without.
func (d *Daemon) troubles() (list []trouble) {
	add := func(why error, do string) {
		if why != nil {
			list = append(list, trouble{why, do})
		}
	}
	if short := d.short.Load(); short != nil {
		add(*short, "Lower cpu.capacity, or free memory, and restart the daemon")
	}
	for p, err := range d.store.Operator.Trouble() {
		add(err, remedies[p])
	}
	const restart = "Restart the daemon, and report what its log says of it"
	add(base.BrokenErr(), restart)
	add(d.cpu.Mistrusted(), restart)
	add(d.distrusted.Err(), "`kvstored list spaces` names them; `kvstored forget --space ID`, then `--distrust ID`, begins anew")
	if d.health.full.Load() {
		add(errFull, "Free room on its file system, or raise disk.capacity")
	}
	return list
}

// healthNow is ready, or the troubles, their beginning and the remedies. The log has each change.
func (d *Daemon) healthNow() (state, text string) {
	state, level, list := "ready", zerolog.InfoLevel, d.troubles()
	if err := d.ready(); err != nil {
		state, list = "not ready", []trouble{{err, "Engines that are connected are served meanwhile"}}
	} else if list != nil {
		state, level = "degraded", zerolog.WarnLevel
	}
	text, before, changed := d.health.tell(time.Now(), state, list)
	if changed {
		d.log.WithLevel(level).Str("before", before).Msg(text)
	}
	return state, text
}
