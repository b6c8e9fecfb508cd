package admin

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kvstored/kvstored/internal/httpd"
)

func board() *Dashboard {
	return NewDashboard(DashboardOptions{
		Stats:   http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { httpd.Reply(w, 200, 1) }),
		Sample:  func() Sample { return Sample{AskedTokens: 7} },
		Answers: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { httpd.Reply(w, 200, "names by "+r.URL.Path) }),
	})
}

// asked is the reply to a request.
func asked(h http.Handler, method, path, host, origin string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, "http://x/", nil)
	r.URL.Path, r.Host = path, host
	if origin != "" {
		r.Header.Set("Origin", origin)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// TestPages: the page, its scripts, its style and its numbers are there with their policy,
// and nothing else is; names are refused, and so are foreign pages.
func TestPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := httpd.SameOrigin(board().Handler(false), nil, "admin.hosts")
		for _, tc := range []struct {
			method, path, host, origin string
			status                     int
			says                       string
		}{
			{"GET", "/dashboard/", "localhost", "", 200, "<title>kvstored</title>"},
			{"GET", "/dashboard/dashboard.js", "localhost", "", 200, "setTimeout"},
			{"GET", "/dashboard/icicle.js", "127.0.0.1:9464", "http://127.0.0.1:9464", 200, "startIcicle"},
			{"GET", "/dashboard/dashboard.css", "localhost", "", 200, "prefers-color-scheme"},
			{"GET", "/dashboard/stats", "localhost", "", 200, "1"},
			{"GET", "/dashboard/past", "localhost", "", 200, `"names":false`},
			{"GET", "/dashboard/v1/prefixes", "localhost", "", 403, "admin.dashboard"},
			{"GET", "/dashboard/v1/clients", "localhost", "", 403, "admin.dashboard"},
			{"GET", "/dashboard/v1/config", "localhost", "", 404, ""},
			{"GET", "/dashboard/none.js", "localhost", "", 404, ""},
			{"GET", "/dashboard/../../etc/passwd", "localhost", "", 404, ""},
			{"POST", "/dashboard/stats", "localhost", "", 405, ""},
			{"GET", "/dashboard/", "evil.example", "", 403, "none of this listener's"},
			{"GET", "/dashboard/stats", "localhost", "http://evil.example", 403, "foreign"},
		} {
			w := asked(h, tc.method, tc.path, tc.host, tc.origin)
			if w.Code != tc.status && w.Code/100 != 3 || !strings.Contains(w.Body.String(), tc.says) {
				t.Errorf("%s %s of %s: %d %.80q", tc.method, tc.path, tc.host, w.Code, w.Body)
			}
			if got := w.Header().Get("Content-Security-Policy"); tc.status == 200 && !strings.HasPrefix(got, "default-src 'none'; script-src 'self'") {
				t.Errorf("%s: %q", tc.path, got)
			}
		}
	})
}

// TestNames: where names may be seen, the calls of the page are answered, and no others.
func TestNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := board().Handler(true)
		for _, call := range named {
			method, name, _ := strings.Cut(call, " ")
			if w := asked(h, method, "/dashboard/v1/"+name, "localhost", ""); w.Code != 200 || !strings.Contains(w.Body.String(), "names by /v1/"+name) {
				t.Errorf("%s: %d %s", call, w.Code, w.Body)
			}
		}
		for _, call := range []string{"config", "forget", "clients/", ""} {
			if w := asked(h, "GET", "/dashboard/v1/"+call, "localhost", ""); w.Code != 404 {
				t.Errorf("%s: %d %s", call, w.Code, w.Body)
			}
		}
		if w := asked(h, "GET", "/dashboard/past", "localhost", ""); !strings.Contains(w.Body.String(), `"names":true`) {
			t.Error(w.Body)
		}
	})
}

// TestSteps: an hour of samples is told in so many steps, with their ages, the newest
// always among them.
func TestSteps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p past
		begun := time.Now()
		for i := range sampleCount + 77 {
			at := begun.Add(time.Duration(i) * sampleEvery)
			p.add(at, Sample{AskedTokens: uint64(i)})
			steps := p.steps(at.Add(time.Second), stepsShown)
			if last := steps[len(steps)-1]; len(steps) > stepsShown+1 || last.AskedTokens != uint64(i) || last.AgeSeconds != 1 {
				t.Fatalf("after %d samples: %d steps, the last %+v", i, len(steps), last)
			}
		}
	})
}

// TestRun: the page has samples of every two seconds.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := board()
		go func() { _ = d.Run(t.Context()) }() // it ends with the test
		time.Sleep(2*sampleEvery + time.Second)
		var got hour
		if err := json.Unmarshal(asked(d.Handler(false), "GET", "/dashboard/past", "localhost", "").Body.Bytes(), &got); err != nil {
			t.Fatal(err)
		}
		if len(got.Samples) != 3 || got.Samples[0].AskedTokens != 7 || got.Samples[0].AgeSeconds != 5 || got.Samples[2].AgeSeconds != 1 {
			t.Errorf("%+v", got)
		}
	})
}
