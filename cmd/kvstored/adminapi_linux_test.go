package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/internal/admin"
)

// adminClient speaks plain HTTP to a daemon's admin.socket as one user.
func adminClient(t *testing.T, d *demoDaemon, uid uintptr) *http.Client {
	dial := func(context.Context, string, string) (conn net.Conn, err error) {
		as(t, uid, func() { conn, err = net.Dial("unix", config.AdminSocketOf(d.socket)) })
		return conn, err
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
	d := startDaemonWith(t, func(c *config.Config) { c.CPU.Capacity, c.Disk.Capacity = 64<<20, 0 })
	t.Setenv("KVSTORED_SOCKET", d.socket)
	must(t, kv(1, 2), prompt("put", 1, 2)...)
	c := adminClient(t, d, 0)
	const space = `"6e33fcdcdaf1c74c161088f6a05d399a"`
	for _, tc := range []struct {
		method, path, body string
		code               admin.Code
		status             int
		says               string
	}{
		{"GET", "/", "", admin.UnknownCall, 404, "no call"},
		{"GET", "/v1/nothing", "", admin.UnknownCall, 404, "/v1/nothing"},
		{"GET", "/v1/pins/", "", admin.UnknownCall, 404, "no call"},
		{"GET", "/v2/pins", "", admin.UnknownCall, 404, "no call"},
		{"GET", "/metrics", "", admin.UnknownCall, 404, "no call"},

		{"GET", "/v1/clear", "", admin.WrongMethod, 405, "takes POST, not GET"},
		{"HEAD", "/v1/pins", "", admin.WrongMethod, 405, ""},
		{"DELETE", "/v1/policy", "", admin.WrongMethod, 405, "takes GET or PUT, not DELETE"},
		{"POST", "/v1/policy", `{"tier": "cpu", "policy": "lru"}`, admin.WrongMethod, 405, "GET or PUT"},

		{"GET", "/v1/pins?name=x", "", admin.BadRequest, 400, `unknown field \"name\"`},
		{"GET", "/v1/spaces?after=x", "", admin.BadRequest, 400, "no space"},
		{"GET", "/v1/spaces?after=%zz", "", admin.BadRequest, 400, "cannot be read"},
		{"GET", "/v1/spaces?after=a;b", "", admin.BadRequest, 400, "cannot be read"},
		{"GET", "/v1/spaces?after=a&after=b", "", admin.BadRequest, 400, "2 times"},
		{"GET", "/v1/clients?uid=1", "", admin.BadRequest, 400, `unknown field \"uid\"`},
		{"GET", "/v1/jobs?limit=1", "", admin.BadRequest, 400, `unknown field \"limit\"`},
		{"GET", "/v1/leases?connection=1", "", admin.BadRequest, 400, "unknown field"},
		{"GET", "/v1/ls?by=size", "", admin.BadRequest, 400, "is no order"},
		{"GET", "/v1/ls?space=m", "", admin.BadRequest, 400, "is no space"},
		{"GET", "/v1/ls?limit=0", "", admin.BadRequest, 400, "from 1 to 1000"},
		{"GET", "/v1/ls?limit=1e3", "", admin.BadRequest, 400, "no whole number"},
		{"GET", "/v1/ls?after=-1", "", admin.BadRequest, 400, "after"},
		{"GET", "/v1/ls?under=zz", "", admin.NotFound, 404, "no prefix begins"},
		{"GET", "/v1/ls?all=yes", "", admin.BadRequest, 400, "neither true nor false"},
		{"GET", "/v1/tree?limit=100000", "", admin.BadRequest, 400, "from 1 to 4000"},
		{"GET", "/v1/tree?under=zz", "", admin.NotFound, 404, "no prefix begins"},
		{"GET", "/v1/tree?by=heat", "", admin.BadRequest, 400, "unknown field"},
		{"GET", "/v1/pins", "{}", admin.BadRequest, 400, "no body"},
		{"POST", "/v1/clear?tiers=cpu", `{"tiers": ["cpu"]}`, admin.BadRequest, 400, "in the body"},

		{"POST", "/v1/clear", "", admin.BadRequest, 400, "no tiers"},
		{"POST", "/v1/clear", `{"tiers": []}`, admin.BadRequest, 400, "no tiers"},
		{"POST", "/v1/clear", `{"tiers": "cpu"}`, admin.BadRequest, 400, `\"tiers\" does not take a string`},
		{"POST", "/v1/clear", `{"tiers": ["cpu", "tape"]}`, admin.BadRequest, 400, `\"tape\" is no tier`},
		{"POST", "/v1/clear", `{"tier": ["cpu"]}`, admin.BadRequest, 400, `unknown field \"tier\"`},
		{"POST", "/v1/clear", `{"tiers": ["cpu"]} {}`, admin.BadRequest, 400, "follows"},
		{"POST", "/v1/clear", `{"tiers": ["cpu"`, admin.BadRequest, 400, "no JSON"},
		{"POST", "/v1/clear", `["cpu"]`, admin.BadRequest, 400, "no JSON object but a array"},
		{"POST", "/v1/scrub", " null", admin.BadRequest, 400, "but null"},
		{"POST", "/v1/clear", "tiers=cpu", admin.BadRequest, 400, "no JSON"},
		{"POST", "/v1/clear", strings.Repeat(" ", admin.BodyBytes) + `{"tiers": ["cpu"]}`, admin.TooLarge, 413, "65536"},
		{"POST", "/v1/clear", `{"tiers": ["remote"]}`, admin.NotFound, 404, "there is no remote tier"},
		{"POST", "/v1/clear", `{"tiers": ["cpu", "disk"]}`, admin.NotFound, 404, "there is no disk tier"},

		{"POST", "/v1/revoke", "{}", admin.BadRequest, 400, "not 0"},
		{"POST", "/v1/revoke", `{"name": "a", "all_pins": true}`, admin.BadRequest, 400, "not 2"},
		{"POST", "/v1/revoke", `{"connection": -1}`, admin.BadRequest, 400, "connection"},
		{"POST", "/v1/revoke", `{"connection": "1"}`, admin.BadRequest, 400, "connection"},
		{"POST", "/v1/revoke", `{"connection": 1000000}`, admin.NotFound, 404, "no connection 1000000"},
		{"POST", "/v1/retain", `{"action": "retain"}`, admin.BadRequest, 400, "space"},
		{"POST", "/v1/retain", `{"action": "retain", "space": "6e33fcdcdaf1c74c161088f6a05d399a"}`, admin.BadRequest, 400, "not 0"},
		{"POST", "/v1/retain", `{"action": "done", "space": "6e33fcdcdaf1c74c161088f6a05d399a", "session": "s"}`, admin.BadRequest, 400, "no action"},
		{"POST", "/v1/retain", `{"action": "keep", "space": "6e33fcdcdaf1c74c161088f6a05d399a", "hashes": ["6e33fcdcdaf1c74c161088f6a05d399a"]}`, admin.BadRequest, 400, "no action"},
		{"POST", "/v1/retain", `{"action": "retain", "space": "6e33fcdcdaf1c74c161088f6a05d399a", "hashes": ["6e33fcdcdaf1c74c161088f6a05d399a"], "priority": 101}`, admin.BadRequest, 400, "priority"},
		{"POST", "/v1/retain", `{"action": "retain", "space": "6e33fcdcdaf1c74c161088f6a05d399a", "hashes": ["6e"], "priority": 5}`, admin.BadRequest, 400, "no hash"},
		{"POST", "/v1/retain", `{"action": "demote", "space": "6e33fcdcdaf1c74c161088f6a05d399a", "session": "s"}`, admin.NotFound, 404, "session"},
		{"POST", "/v1/retain", `{"action": "demote", "space": "6e33fcdcdaf1c74c161088f6a05d399a", "tokens": [1]}`, admin.NotFound, 404, "not opened"},

		{"PUT", "/v1/policy", "{}", admin.BadRequest, 400, "is no tier"},
		{"PUT", "/v1/policy", `{"tier": "cpu"}`, admin.BadRequest, 400, "no policy called"},
		{"PUT", "/v1/policy", `{"tier": "cpu", "policy": "lifo"}`, admin.BadRequest, 400, "lifo"},
		{"PUT", "/v1/policy", `{"tier": "CPU", "policy": "lru"}`, admin.BadRequest, 400, "is no tier"},
		{"PUT", "/v1/policy", `{"tier": "disk", "policy": "lru"}`, admin.NotFound, 404, "there is no disk tier"},

		{"POST", "/v1/purge", "{}", admin.BadRequest, 400, "is no space"},
		{"POST", "/v1/purge", `{"space": "6e33"}`, admin.BadRequest, 400, "is no space"},
		{"POST", "/v1/purge", `{"space": "zz33fcdcdaf1c74c161088f6a05d399a"}`, admin.BadRequest, 400, "is no space"},
		{"POST", "/v1/purge", `{"space": ` + space + `, "dry_run": "no"}`, admin.BadRequest, 400, "dry_run"},
		{"POST", "/v1/purge", `{"space": ` + space + `, "dry-run": true}`, admin.BadRequest, 400, "unknown field"},

		{"POST", "/v1/scrub", `{"bytes_per_second": -1}`, admin.BadRequest, 400, "less than 0"},
		{"POST", "/v1/scrub", `{"bytes_per_second": 1.5}`, admin.BadRequest, 400, "bytes_per_second"},
		{"POST", "/v1/scrub", `{"rate": 1}`, admin.BadRequest, 400, "unknown field"},
		{"POST", "/v1/scrub", "", admin.NotFound, 404, "there is no disk tier"},
		{"POST", "/v1/rebuild", "", admin.NotFound, 404, "there is no disk tier"},
		{"GET", "/v1/rebuild", "", admin.NotFound, 404, "there is no disk tier"},
		{"POST", "/v1/rebuild", `{"begin": true}`, admin.BadRequest, 400, "unknown field"},
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
	if resp, text := call(t, c, "POST", "/v1/clear", `{"tiers": ["cpu"]}`); resp.StatusCode != 200 || text != `{"chunks":2}`+"\n" {
		t.Errorf("clear: %d, %s", resp.StatusCode, text)
	}
}

// adminCalls are the calls, and where each takes the right.
var adminCalls = []struct {
	method, path, body string
	everywhere         bool
}{
	{"GET", "/v1/version", "", false}, {"GET", "/v1/spaces", "", false},
	{"GET", "/v1/config", "", true}, {"GET", "/v1/pins", "", true},
	{"GET", "/v1/clients", "", true}, {"GET", "/v1/leases", "", true}, {"GET", "/v1/jobs", "", true},
	{"GET", "/v1/ls", "", true}, {"GET", "/v1/tree", "", true},
	{"GET", "/v1/policy", "", true}, {"PUT", "/v1/policy", `{"tier": "cpu", "policy": "lru"}`, true},
	{"POST", "/v1/revoke", `{"name": "none"}`, true}, {"POST", "/v1/clear", `{"tiers": ["cpu"]}`, true},
	{"GET", "/v1/retains", "", true}, {"POST", "/v1/retain", `{"action": "release", "space": "00000000000000000000000000000001"}`, true},
	{"POST", "/v1/scrub", "", true}, {"POST", "/v1/rebuild", "", true}, {"GET", "/v1/rebuild", "", true},
	{"POST", "/v1/purge", `{"space": "00000000000000000000000000000001"}`, true}, // of a space that is not known
}

// TestAdminRights: of each user each call is let through or denied as the rules of
// that moment say, on connections that were there before.
func TestAdminRights(t *testing.T) {
	var carol uintptr = 12347 // in no rule
	r := newReloadRig(t, func(c *config.Config) {
		dir := filepath.Dir(c.Listen.Socket)
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		c.CPU.Capacity, c.Disk.Capacity, c.Listen.Mode, c.Admin.Mode = 64<<20, 0, 0o666, 0o666
	})
	users := map[uintptr]*http.Client{0: nil, uidAlice: nil, uidBob: nil, carol: nil}
	for uid := range users {
		users[uid] = adminClient(t, r.d, uid)
	}
	const none, any, every = 0, 1, 2
	for _, tc := range []struct {
		set  map[string]string
		have map[uintptr]int // of others than root
	}{
		{nil, nil},
		{map[string]string{"listen.admin_uids": "[12345]"}, map[uintptr]int{uidAlice: every}},
		{map[string]string{"access": "[{uids: [12345], match: 'a-*', rights: [admin]}, {uids: [12346], match: '*', rights: [read, write]}]"}, map[uintptr]int{uidAlice: any}},
		{map[string]string{"access": "[{uids: [12345, 12346], match: '*', rights: [admin]}]"}, map[uintptr]int{uidAlice: every, uidBob: every}},
	} {
		if after, log := r.set(tc.set); !after.LastReloadOK {
			t.Fatal(log)
		}
		for uid, c := range users {
			have := tc.have[uid]
			if uid == 0 {
				have = every
			}
			for _, of := range adminCalls {
				resp, text := call(t, c, of.method, of.path, of.body)
				want := have == every || have == any && !of.everywhere
				if (resp.StatusCode == http.StatusForbidden) == want || !want && !strings.Contains(text, fmt.Sprintf("user %d ", uid)) {
					t.Errorf("%v: user %d, %s %s: %d, %s; allowed: %t", tc.set, uid, of.method, of.path, resp.StatusCode, text, want)
				}
			}
			if resp, _ := call(t, c, "GET", "/v1/nothing", ""); (resp.StatusCode == http.StatusForbidden) != (have == none) {
				t.Errorf("%v: user %d asks for what there is not: %d", tc.set, uid, resp.StatusCode)
			}
		}
	}
}

// TestAdminSocketFile: the socket has mode 0600 beside the daemon's, keeps others
// out, and goes with the daemon; commands of users that may not connect are told
// what to do.
func TestAdminSocketFile(t *testing.T) {
	d, _ := publicDaemon(t, func(c *config.Config) { c.Disk.Capacity = 0 })
	path := config.AdminSocketOf(d.socket)
	st, err := os.Lstat(path)
	if err != nil || st.Mode() != os.ModeSocket|0o600 {
		t.Errorf("the socket: %v, %v", st, err)
	}
	as(t, 12345, func() { _, err = net.Dial("unix", path) })
	if !errors.Is(err, os.ErrPermission) {
		t.Errorf("another user: %v", err)
	}
	must(t, "", "pins", "--socket", "/nonexistent", "--admin-socket", path)
	must(t, "", "pins", "--socket", d.socket)
	fails(t, exitUnreachable, "--admin-socket", "pins", "--socket", path)
	fails(t, exitFailure, "use the daemon's admin.socket", "pins", "--admin-socket", d.socket)
	if err := d.stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket stays: %v", err)
	}
}

// TestLongAdminCallEnds: a scrub ends with its client, and with the daemon, which it
// does not hold up.
func TestLongAdminCallEnds(t *testing.T) {
	d := startDaemonWith(t, func(c *config.Config) { c.CPU.Capacity, c.Log.Format = 64<<20, "json" })
	t.Setenv("KVSTORED_SOCKET", d.socket)
	must(t, kv(1, 4), prompt("put", 1, 4)...)
	must(t, "", "flush")
	c := admin.NewClient(config.AdminSocketOf(d.socket), 0)
	defer c.Close()
	scrub := func(ctx context.Context) error {
		return c.Do(ctx, "POST", "/v1/scrub", admin.ScrubRequest{BytesPerSecond: 1}, new(admin.Scrubbed))
	}
	ended := make(chan error, 1)
	begun := func() uint64 { return tiersNow(t)["disk"].Counters["scrub_begun"] }
	begin := func(ctx context.Context) {
		before := begun()
		go func() { ended <- scrub(ctx) }()
		for end := time.Now().Add(30 * time.Second); begun() == before; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("the scrub does not begin")
			}
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	begin(ctx)
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the client that leaves: %v", err)
	}
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if log, _ := os.ReadFile(d.log); strings.Contains(string(log), `"call":"POST /v1/scrub"`) {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the scrub goes on without its client")
		}
	}
	begin(t.Context())
	if err := d.stop(t.Context()); err != nil {
		t.Error(err)
	}
	if err := <-ended; !errors.Is(err, admin.Stopping) && !errors.Is(err, admin.ErrGone) {
		t.Errorf("the stop: %v", err)
	}
}
