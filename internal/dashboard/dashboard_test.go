package dashboard

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kvstored/kvstored/internal/httpd"
	"github.com/kvstored/kvstored/internal/missing"
	"github.com/kvstored/kvstored/internal/pipe"
	"github.com/kvstored/kvstored/internal/server"
	"github.com/kvstored/kvstored/tier"
)

// counted is numbers that grow with each look.
func counted() func() Numbers {
	asked := uint64(0)
	return func() Numbers {
		asked += 1000
		return Numbers{
			Version: "<v>", Advice: "buy <DRAM>",
			Server: server.Stats{
				AskedTokens: asked, HitTokens: map[tier.Place]uint64{tier.CPU: asked / 2, tier.Disk: asked / 4},
				Missed: missing.Totals{Missed: []missing.Total{{Tier: "cpu", Reason: "never_stored", Tokens: asked / 4}}},
			},
			Tiers: map[tier.Place]tier.Stats{tier.CPU: {UsedBytes: 1 << 20, CapacityBytes: 4 << 20}, tier.Disk: {UsedBytes: 1, CapacityBytes: 2, GetBytes: asked}},
		}
	}
}

// TestPages: the page, its scripts and its style are there with their policy, and nothing
// else is; without names the prefixes are refused; foreign pages are.
func TestPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := New(Options{Numbers: counted()})
		h := httpd.SameOrigin(d.Handler(false), nil, "admin.hosts")
		for _, tc := range []struct {
			method, path, host, origin string
			status                     int
			says                       string
		}{
			{"GET", "/dashboard/", "localhost", "", 200, "<title>kvstored</title>"},
			{"GET", "/dashboard/dashboard.js", "localhost", "", 200, "EventSource"},
			{"GET", "/dashboard/icicle.js", "127.0.0.1:9464", "http://127.0.0.1:9464", 200, "startIcicle"},
			{"GET", "/dashboard/dashboard.css", "localhost", "", 200, "prefers-color-scheme"},
			{"GET", "/dashboard/chart.css", "localhost", "", 200, ".chart .fill0{"},
			{"GET", "/dashboard/tree", "localhost", "", 403, "admin.dashboard"},
			{"GET", "/dashboard/none.js", "localhost", "", 404, ""},
			{"GET", "/dashboard/../../etc/passwd", "localhost", "", 404, ""},
			{"POST", "/dashboard/events", "localhost", "", 405, ""},
			{"GET", "/dashboard/", "evil.example", "", 403, "none of this listener's"},
			{"GET", "/dashboard/events", "localhost", "http://evil.example", 403, "foreign"},
		} {
			r := httptest.NewRequest(tc.method, "http://x"+"/", nil)
			r.URL.Path, r.Host = tc.path, tc.host
			if tc.origin != "" {
				r.Header.Set("Origin", tc.origin)
			}
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if w.Code != tc.status && w.Code/100 != 3 || !strings.Contains(w.Body.String(), tc.says) {
				t.Errorf("%s %s of %s: %d %.80q", tc.method, tc.path, tc.host, w.Code, w.Body)
			}
			if got := w.Header().Get("Content-Security-Policy"); tc.status == 200 && !strings.HasPrefix(got, "default-src 'none'; script-src 'self'") {
				t.Errorf("%s: %q", tc.path, got)
			}
		}
	})
}

// served is a client of the handler.
func served(t *testing.T, d *Dashboard) *http.Client {
	t.Helper()
	l, s := pipe.Listen("s"), &http.Server{Handler: d.Handler(false)}
	go func() { _ = s.Serve(l) }() // it ends with Close
	t.Cleanup(func() { s.Close() })
	return &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return l.Dial(ctx) }}}
}

// TestStreams: a stream tells the counts, without names; one more than there may
// be is refused, and has its turn when another ends.
func TestStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := New(Options{Numbers: counted()})
		n := d.o.Numbers()
		for i := range 30 {
			d.past.add(sampleOf(&n, time.Now().Add(time.Duration(i-30)*sampleEvery)))
			n = d.o.Numbers()
		}
		client := served(t, d)
		var open []io.Closer
		for i := range MaxStreams + 1 {
			resp, err := client.Get("http://localhost/dashboard/events")
			if err != nil {
				t.Fatal(err)
			}
			if i == MaxStreams {
				resp.Body.Close()
				if resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") == "" {
					t.Errorf("stream %d: status %d", i, resp.StatusCode)
				}
				break
			}
			open = append(open, resp.Body)
			line, err := bufio.NewReader(resp.Body).ReadString('\n')
			if err != nil || resp.StatusCode != http.StatusOK {
				t.Fatalf("stream %d: status %d, %v", i, resp.StatusCode, err)
			}
			var v view
			if err := json.Unmarshal([]byte(strings.TrimPrefix(line, "data: ")), &v); err != nil {
				t.Fatal(err)
			}
			if v.Names || v.Tables["clients"] != nil || v.Text["hit"] != "75.0 %" && v.Text["hit"] != "75 %" || v.Tables["missed"].Rows[0][0] != "never stored" || !strings.Contains(v.Charts["hits"].SVG, "<path class=\"line") {
				t.Errorf("%+v", v)
			}
		}
		for _, c := range open {
			c.Close()
		}
		synctest.Wait()
		if n := d.streams.Load(); n > 0 {
			t.Errorf("%d streams are left", n)
		}
	})
}

// deaf is a connection whose other end reads nothing after so many bytes.
type deaf struct {
	http.ResponseWriter
	deadline time.Time
}

func (d *deaf) SetWriteDeadline(at time.Time) error { d.deadline = at; return nil }
func (d *deaf) SetReadDeadline(time.Time) error     { return nil }
func (d *deaf) FlushError() error {
	time.Sleep(time.Until(d.deadline))
	return fmt.Errorf("write: %w", net.ErrClosed)
}

// TestDeaf: a stream whose reader takes nothing ends when its time is over.
func TestDeaf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := New(Options{Numbers: counted()})
		begun := time.Now()
		d.stream(&deaf{ResponseWriter: httptest.NewRecorder()}, httptest.NewRequestWithContext(t.Context(), "GET", "/dashboard/events", nil), false)
		if took := time.Since(begun); took != writeTimeout || d.streams.Load() != 0 {
			t.Errorf("it took %v, and %d streams are left", took, d.streams.Load())
		}
	})
}

// TestSteps: an hour of samples is told in so many steps, the newest always among them.
func TestSteps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := New(Options{})
		begun := time.Now()
		for i := range sampleCount + 77 {
			d.past.add(sample{at: begun.Add(time.Duration(i) * sampleEvery), asked: uint64(i)})
			steps := d.past.steps(60)
			if len(steps) > 61 || steps[len(steps)-1].asked != uint64(i) {
				t.Fatalf("after %d samples: %d steps, the last %d", i, len(steps), steps[len(steps)-1].asked)
			}
		}
	})
}

// TestModels: the page lists models, what each asked for and had, without names of clients.
func TestModels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := counted()()
		n.Server.Models = []server.ModelStats{
			{Model: "small", AskedTokens: 100, HitTokens: [3]uint64{10, 20, 5}, StoredBytes: 1 << 20},
			{Model: "large", AskedTokens: 1000, HitTokens: [3]uint64{500}},
		}
		v := New(Options{Numbers: func() Numbers { return n }}).look(false)
		var got []string
		for _, row := range v.Tables["models"].Rows {
			got = append(got, strings.Join(row, "|"))
		}
		if want := "large|1,000|50.0 %|50.0 %|0.0 %|0 B\nsmall|100|35.0 %|10.0 %|20.0 %|1.0 MiB"; strings.Join(got, "\n") != want {
			t.Errorf("%s\nwant\n%s", strings.Join(got, "\n"), want)
		}
	})
}
