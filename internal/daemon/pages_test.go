package daemon

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

// TestPagesAreReadOnly: no page of admin.listen takes another method than GET and
// HEAD, none of what admin.socket answers is there, and a foreign page reads none.
func TestPagesAreReadOnly(t *testing.T) {
	cfg := smallConfig(t)
	cfg.Admin.Listen, cfg.Admin.Hosts, cfg.Disk.Capacity = "localhost:0", []string{"Node1.example"}, 0
	addr := serve(t, cfg).pages.Addr().String()
	ask := func(method, path, host, origin string) (int, string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, "http://"+addr+path, strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		r.Host = host
		if origin != "" {
			r.Header.Set("Origin", origin)
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(text)
	}
	for _, path := range []string{"/", "/metrics", "/healthz", "/readyz"} {
		for _, method := range []string{"POST", "PUT", "PATCH", "DELETE", "OPTIONS"} {
			if code, _ := ask(method, path, addr, ""); code != http.StatusMethodNotAllowed {
				t.Errorf("%s %s: %d", method, path, code)
			}
		}
		if code, _ := ask("HEAD", path, addr, ""); code != http.StatusOK && path != "/readyz" {
			t.Errorf("HEAD %s: %d", path, code)
		}
		for _, host := range []string{addr, "localhost", "node1.example:80", "10.0.0.1"} {
			if code, _ := ask("GET", path, host, ""); code == http.StatusForbidden {
				t.Errorf("GET %s of %s: %d", path, host, code)
			}
		}
		if code, says := ask("GET", path, "attacker.example", ""); code != http.StatusForbidden || !strings.Contains(says, "admin.hosts") {
			t.Errorf("GET %s under a foreign name: %d, %s", path, code, says)
		}
		if code, _ := ask("GET", path, addr, "http://attacker.example"); code != http.StatusForbidden {
			t.Errorf("GET %s for a foreign page: %d", path, code)
		}
	}
	for _, path := range []string{"/v1/config", "/v1/claims", "/v1/forget", "/v1/version", "/debug/pprof/"} {
		for _, method := range []string{"GET", "POST"} {
			if code, _ := ask(method, path, addr, ""); code < 400 {
				t.Errorf("%s %s: %d", method, path, code)
			}
		}
	}
}
