package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/internal/admin"
)

// adminClient speaks plain HTTP to a daemon's admin.socket.
func adminClient(t *testing.T, socket string) *http.Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", config.AdminSocketOf(socket))
	}
	h := &http.Transport{DialContext: dial}
	t.Cleanup(h.CloseIdleConnections)
	return &http.Client{Transport: h, Timeout: time.Minute}
}

// call sends one request and returns the status and the body.
func call(t *testing.T, c *http.Client, method, path, body string) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, "http://kvstored"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := c.Do(r)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(text)
}

// TestAdminWrongInput: each wrong way to call is answered by its code, its text
// and what to do, and costs nothing.
func TestAdminWrongInput(t *testing.T) {
	d := serveHere(t)
	must(t, kv(1, 2), prompt("put", 1, 2)...)
	c := adminClient(t, d.socket)
	const space = `"6e33fcdcdaf1c74c161088f6a05d399a"`
	for _, tc := range []struct {
		method, path, body string
		code               admin.Code
		status             int
		says               string
	}{
		{"GET", "/", "", admin.UnknownCall, 404, "no call"},
		{"GET", "/v1/nothing", "", admin.UnknownCall, 404, "/v1/nothing"},
		{"GET", "/v1/claims/", "", admin.UnknownCall, 404, "no call"},
		{"GET", "/v2/pins", "", admin.UnknownCall, 404, "no call"},
		{"GET", "/metrics", "", admin.UnknownCall, 404, "no call"},

		{"GET", "/v1/forget", "", admin.WrongMethod, 405, "takes POST, not GET"},
		{"HEAD", "/v1/claims", "", admin.WrongMethod, 405, ""},
		{"DELETE", "/v1/claims", "", admin.WrongMethod, 405, "takes GET or POST, not DELETE"},
		{"POST", "/v1/policy", `{"tier": "cpu", "policy": "lru"}`, admin.WrongMethod, 405, "takes PUT"},

		{"GET", "/v1/claims?name=x", "", admin.BadRequest, 400, `unknown field \"name\"`},
		{"GET", "/v1/spaces?after=x", "", admin.BadRequest, 400, "no space"},
		{"GET", "/v1/spaces?after=%zz", "", admin.BadRequest, 400, "cannot be read"},
		{"GET", "/v1/spaces?after=a;b", "", admin.BadRequest, 400, "cannot be read"},
		{"GET", "/v1/spaces?after=a&after=b", "", admin.BadRequest, 400, "2 times"},
		{"GET", "/v1/clients?uid=1", "", admin.BadRequest, 400, `unknown field \"uid\"`},
		{"GET", "/v1/leases?limit=1", "", admin.BadRequest, 400, `unknown field \"limit\"`},
		{"GET", "/v1/leases?connection=1", "", admin.BadRequest, 400, "unknown field"},
		{"GET", "/v1/prefixes?by=size", "", admin.BadRequest, 400, "is no order"},
		{"GET", "/v1/prefixes?space=m", "", admin.BadRequest, 400, "is no space"},
		{"GET", "/v1/prefixes?limit=0", "", admin.BadRequest, 400, "from 1 to 1000"},
		{"GET", "/v1/prefixes?limit=1e3", "", admin.BadRequest, 400, "no whole number"},
		{"GET", "/v1/prefixes?after=-1", "", admin.BadRequest, 400, "after"},
		{"GET", "/v1/prefixes?under=zz", "", admin.NotFound, 404, "no prefix begins"},
		{"GET", "/v1/prefixes?all=yes", "", admin.BadRequest, 400, "neither true nor false"},
		{"GET", "/v1/prefixes?by=tree&limit=100000", "", admin.BadRequest, 400, "from 1 to 4000"},
		{"GET", "/v1/prefixes?by=tree&under=zz", "", admin.NotFound, 404, "no prefix begins"},
		{"GET", "/v1/claims", "{}", admin.BadRequest, 400, "no body"},
		{"POST", "/v1/forget?tiers=cpu", `{"tiers": ["cpu"]}`, admin.BadRequest, 400, "in the body"},

		{"POST", "/v1/forget", "", admin.BadRequest, 400, "no tiers"},
		{"POST", "/v1/forget", `{"tiers": []}`, admin.BadRequest, 400, "no tiers"},
		{"POST", "/v1/forget", `{"tiers": "cpu"}`, admin.BadRequest, 400, `\"tiers\" does not take a string`},
		{"POST", "/v1/forget", `{"tiers": ["cpu", "tape"]}`, admin.BadRequest, 400, `\"tape\" is no tier`},
		{"POST", "/v1/forget", `{"tier": ["cpu"]}`, admin.BadRequest, 400, `unknown field \"tier\"`},
		{"POST", "/v1/forget", `{"tiers": ["cpu"]} {}`, admin.BadRequest, 400, "follows"},
		{"POST", "/v1/forget", `{"tiers": ["cpu"`, admin.BadRequest, 400, "no JSON"},
		{"POST", "/v1/forget", `["cpu"]`, admin.BadRequest, 400, "no JSON object but a array"},
		{"POST", "/v1/scrub", " null", admin.BadRequest, 400, "but null"},
		{"POST", "/v1/forget", "tiers=cpu", admin.BadRequest, 400, "no JSON"},
		{"POST", "/v1/forget", strings.Repeat(" ", admin.BodyBytes) + `{"tiers": ["cpu"]}`, admin.TooLarge, 413, "65536"},
		{"POST", "/v1/forget", `{"tiers": ["remote"]}`, admin.NotFound, 404, "there is no remote tier"},
		{"POST", "/v1/forget", `{"tiers": ["cpu", "disk"]}`, admin.NotFound, 404, "there is no disk tier"},

		{"POST", "/v1/claims", `{"action": "revoke"}`, admin.BadRequest, 400, "not 0"},
		{"POST", "/v1/claims", `{"action": "revoke", "scope": "a", "all_pins": true}`, admin.BadRequest, 400, "not 2"},
		{"POST", "/v1/claims", `{"action": "revoke", "all_pins": true, "space": "00000000000000000000000000000000"}`, admin.BadRequest, 400, "nothing else"},
		{"POST", "/v1/claims", `{"action": "revoke", "scope": "a", "seconds": 0}`, admin.BadRequest, 400, "nothing else"},
		{"POST", "/v1/claims", `{"action": "release", "all_pins": true, "session": "a"}`, admin.BadRequest, 400, "with revoke only"},
		{"POST", "/v1/claims", `{"action": "revoke", "connection": -1}`, admin.BadRequest, 400, "connection"},
		{"POST", "/v1/claims", `{"action": "revoke", "connection": "1"}`, admin.BadRequest, 400, "connection"},
		{"POST", "/v1/claims", `{"action": "revoke", "connection": 1000000}`, admin.NotFound, 404, "no connection 1000000"},
		{"POST", "/v1/claims", `{"action": "retain"}`, admin.BadRequest, 400, "space"},
		{"POST", "/v1/claims", `{"action": "retain", "space": "6e33fcdcdaf1c74c161088f6a05d399a"}`, admin.BadRequest, 400, "not 0"},
		{"POST", "/v1/claims", `{"action": "done", "space": "6e33fcdcdaf1c74c161088f6a05d399a", "session": "s"}`, admin.BadRequest, 400, "no action"},
		{"POST", "/v1/claims", `{"action": "keep", "space": "6e33fcdcdaf1c74c161088f6a05d399a", "hashes": ["6e33fcdcdaf1c74c161088f6a05d399a"]}`, admin.BadRequest, 400, "no action"},
		{"POST", "/v1/claims", `{"action": "retain", "space": "6e33fcdcdaf1c74c161088f6a05d399a", "hashes": ["6e33fcdcdaf1c74c161088f6a05d399a"], "priority": 101}`, admin.BadRequest, 400, "priority"},
		{"POST", "/v1/claims", `{"action": "retain", "space": "6e33fcdcdaf1c74c161088f6a05d399a", "hashes": ["6e"], "priority": 5}`, admin.BadRequest, 400, "no hash"},
		{"POST", "/v1/claims", `{"action": "demote", "space": "6e33fcdcdaf1c74c161088f6a05d399a", "session": "s"}`, admin.NotFound, 404, "session"},
		{"POST", "/v1/claims", `{"action": "demote", "space": "6e33fcdcdaf1c74c161088f6a05d399a", "tokens": [1]}`, admin.NotFound, 404, "not opened"},

		{"PUT", "/v1/policy", "{}", admin.BadRequest, 400, "is no tier"},
		{"PUT", "/v1/policy", `{"tier": "cpu"}`, admin.BadRequest, 400, "no policy called"},
		{"PUT", "/v1/policy", `{"tier": "cpu", "policy": "lifo"}`, admin.BadRequest, 400, "lifo"},
		{"PUT", "/v1/policy", `{"tier": "CPU", "policy": "lru"}`, admin.BadRequest, 400, "is no tier"},
		{"PUT", "/v1/policy", `{"tier": "disk", "policy": "lru"}`, admin.NotFound, 404, "there is no disk tier"},

		{"POST", "/v1/forget", `{"space": "x"}`, admin.BadRequest, 400, "is no space"},
		{"POST", "/v1/forget", `{"space": "6e33"}`, admin.BadRequest, 400, "is no space"},
		{"POST", "/v1/forget", `{"space": "zz33fcdcdaf1c74c161088f6a05d399a"}`, admin.BadRequest, 400, "is no space"},
		{"POST", "/v1/forget", `{"space": ` + space + `, "dry_run": "no"}`, admin.BadRequest, 400, "dry_run"},
		{"POST", "/v1/forget", `{"space": ` + space + `, "dry-run": true}`, admin.BadRequest, 400, "unknown field"},

		{"POST", "/v1/forget", `{"distrust": true}`, admin.BadRequest, 400, "is no space"},
		{"POST", "/v1/forget", `{"distrust": true, "space": "6e33"}`, admin.BadRequest, 400, "is no space"},
		{"POST", "/v1/forget", `{"distrust": "yes", "space": ` + space + `}`, admin.BadRequest, 400, "distrust"},
		{"POST", "/v1/forget", `{"distrust": true, "tiers": ["cpu"], "space": ` + space + `}`, admin.BadRequest, 400, "a space beside them"},
		{"POST", "/v1/forget", `{"distrust": true, "dry_run": true, "space": ` + space + `}`, admin.BadRequest, 400, "in one step"},
		{"POST", "/v1/forget", `{"distrust": true, "space": ` + space + `}`, admin.NotFound, 404, "is not distrusted"},

		{"POST", "/v1/upload", `{"after": "x"}`, admin.BadRequest, 400, "ends no step"},
		{"POST", "/v1/upload", "", admin.NotFound, 404, "there is no remote tier"},
		{"POST", "/v1/scrub", `{"bytes_per_second": -1}`, admin.BadRequest, 400, "less than 0"},
		{"POST", "/v1/scrub", `{"bytes_per_second": 1.5}`, admin.BadRequest, 400, "bytes_per_second"},
		{"POST", "/v1/scrub", `{"rate": 1}`, admin.BadRequest, 400, "unknown field"},
		{"POST", "/v1/scrub", "", admin.NotFound, 404, "there is no disk tier"},
		{"POST", "/v1/scrub", `{"begin": true}`, admin.BadRequest, 400, "unknown field"},
	} {
		resp, text := call(t, c, tc.method, tc.path, tc.body)
		if resp.StatusCode != tc.status || resp.Header.Get("Content-Type") != "application/json" || !strings.Contains(text, tc.says) {
			t.Errorf("%s %s %.60s: %d %s; want %d, %q", tc.method, tc.path, tc.body, resp.StatusCode, text, tc.status, tc.says)
		}
		if tc.method == "HEAD" {
			continue
		}
		var e admin.Error
		if err := json.Unmarshal([]byte(text), &e); err != nil || e.Code != tc.code || e.Text == "" || e.Do == "" {
			t.Errorf("%s %s %.60s: %v, %s", tc.method, tc.path, tc.body, err, text)
		}
		if allow := resp.Header.Get("Allow"); (allow != "") != (tc.code == admin.WrongMethod) {
			t.Errorf("%s %s: Allow: %s", tc.method, tc.path, allow)
		}
	}
	if got := must(t, "", prompt("get", 1, 2)...); got != kv(1, 2) {
		t.Errorf("%d bytes are left", len(got))
	}
	if resp, text := call(t, c, "POST", "/v1/forget", `{"tiers": ["cpu"]}`); resp.StatusCode != 200 || !strings.HasPrefix(text, `{"chunks":2,`) {
		t.Errorf("clear: %d, %s", resp.StatusCode, text)
	}
}

// TestAdminSocketFile: the socket has mode 0600 beside the daemon's and goes with the daemon;
// commands that are sent to the wrong one are told what to do.
func TestAdminSocketFile(t *testing.T) {
	d := serveHere(t)
	path := config.AdminSocketOf(d.socket)
	st, err := os.Lstat(path)
	if err != nil || st.Mode() != os.ModeSocket|0o600 {
		t.Errorf("the socket: %v, %v", st, err)
	}
	must(t, "", "list", "claims", "--socket", "/nonexistent", "--admin-socket", path)
	must(t, "", "list", "claims", "--socket", d.socket)
	fails(t, exitUnreachable, "--admin-socket", "list", "claims", "--socket", path)
	fails(t, exitFailure, "use the daemon's admin.socket", "list", "claims", "--admin-socket", d.socket)
	d.end(t)
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket stays: %v", err)
	}
}
