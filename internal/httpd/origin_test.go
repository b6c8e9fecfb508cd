package httpd

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestSameOrigin: a page of another origin reads nothing, neither under a name
// that it has point here nor by its Origin header; probes and scrapers do.
func TestSameOrigin(t *testing.T) {
	h := SameOrigin(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "here") }), []string{"node1", "metrics.example"}, "admin.hosts")
	for _, tc := range []struct {
		host, origin string
		in           bool
	}{
		{"127.0.0.1:9464", "", true},
		{"10.1.2.3:9464", "", true},
		{"10.1.2.3", "", true},
		{"[::1]:9464", "", true},
		{"[fd00::1]", "", true},
		{"[fe80::1%eth0]:1", "", true},
		{"localhost:9464", "", true},
		{"LOCALHOST.", "", true},
		{"node1:9464", "", true},
		{"Metrics.Example.", "", true},
		{"", "", true}, // HTTP/1.0
		{"127.0.0.1:9464", "http://127.0.0.1:9464", true},
		{"node1:9464", "http://NODE1:9464", true},

		{"attacker.example:9464", "", false},
		{"attacker.example", "", false},
		{"127.0.0.1.attacker.example", "", false},
		{"localhost.attacker.example:9464", "", false},
		{"node1.attacker.example", "", false},
		{"node2:9464", "", false},
		{"metrics", "", false},
		{"127.0.0.1:9464:9464", "", false},
		{"0x7f000001", "", false},
		{"2130706433", "", false},
		{"127.0.0.1:9464", "http://attacker.example", false},
		{"127.0.0.1:9464", "http://127.0.0.1:9465", false},
		{"127.0.0.1:9464", "http://127.0.0.1", false},
		{"127.0.0.1:9464", "null", false},
		{"127.0.0.1:9464", "127.0.0.1:9464", false},
		{"127.0.0.1:9464", "http://[", false},
		{"attacker.example", "http://attacker.example", false},
	} {
		r := httptest.NewRequest(http.MethodGet, "/metrics", nil)
		r.Host = tc.host
		if tc.origin != "" {
			r.Header.Set("Origin", tc.origin)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if in := w.Code == http.StatusOK && w.Body.String() == "here"; in != tc.in || !in && w.Code != http.StatusForbidden {
			t.Errorf("host %q, origin %q: %d, %s; want it let in: %t", tc.host, tc.origin, w.Code, w.Body, tc.in)
		}
		if says := w.Body.String(); !tc.in && !strings.Contains(says, "admin.hosts") && !strings.Contains(says, "foreign") {
			t.Errorf("host %q, origin %q: it says %q", tc.host, tc.origin, says)
		}
	}
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Host = "127.0.0.1"
	r.Header["Origin"] = []string{"http://127.0.0.1", "http://attacker.example"}
	w := httptest.NewRecorder()
	if h.ServeHTTP(w, r); w.Code != http.StatusForbidden {
		t.Errorf("the second of two origins is not looked at: %d", w.Code)
	}
}
