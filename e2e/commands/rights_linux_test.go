package commands_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/e2e/daemon"
	"github.com/kvstored/kvstored/e2e/need"
)

// The users of these tests; the last is in no rule.
const alice, bob, carol = 12345, 12346, 12347

// public has users other than the daemon's reach a daemon without a disk, and admin.socket
// where its mode says so.
func public(t *testing.T) func(*config.Config) {
	return func(c *config.Config) {
		if err := os.Chmod(strings.TrimSuffix(c.Listen.Socket, "/kvstored.sock"), 0o755); err != nil {
			t.Fatal(err)
		}
		c.Disk.Capacity, c.Listen.Mode = 0, 0o666
	}
}

// adminClient speaks plain HTTP to a daemon's admin.socket as one user.
func adminClient(t *testing.T, d *daemon.Daemon, uid uintptr) *http.Client {
	dial := func(context.Context, string, string) (conn net.Conn, err error) {
		daemon.As(t, uid, func() { conn, err = net.Dial("unix", config.AdminSocketOf(d.Socket)) })
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

// adminCalls are the calls, and where each takes the right.
var adminCalls = []struct {
	method, path, body string
	everywhere         bool
}{
	{"GET", "/v1/version", "", false}, {"GET", "/v1/spaces", "", false},
	{"GET", "/v1/config", "", true}, {"GET", "/v1/claims", "", true}, {"GET", "/v1/clients", "", true}, {"GET", "/v1/leases", "", true},
	{"GET", "/v1/prefixes", "", true}, {"PUT", "/v1/policy", `{"tier": "cpu", "policy": "lru"}`, true},
	{"POST", "/v1/claims", `{"action": "revoke", "scope": "none"}`, true},
	{"POST", "/v1/claims", `{"action": "release", "space": "00000000000000000000000000000001"}`, true},
	{"POST", "/v1/scrub", "", true}, {"POST", "/v1/why", `{"recent": true}`, true},
	{"POST", "/v1/forget", `{"tiers": ["cpu"]}`, true}, {"POST", "/v1/upload", `{"dry_run": true}`, true},
	{"POST", "/v1/forget", `{"space": "00000000000000000000000000000001"}`, true}, // of a space that is not known
}

// TestAdminRights: of each user each call is let through or denied as the rules of that
// moment say, on connections that were there before.
func TestAdminRights(t *testing.T) {
	need.Root(t)
	d := start(t, public(t), func(c *config.Config) { c.Admin.Mode = 0o666 })
	users := map[uintptr]*http.Client{0: nil, alice: nil, bob: nil, carol: nil}
	for uid := range users {
		users[uid] = adminClient(t, d, uid)
	}
	const none, any, every = 0, 1, 2
	for _, tc := range []struct {
		admins []uint32
		access []config.Access
		have   map[uintptr]int // of others than root
	}{
		{nil, nil, nil},
		{[]uint32{alice}, nil, map[uintptr]int{alice: every}},
		{nil, []config.Access{{UIDs: []uint32{alice}, Match: "a-*", Rights: []string{"admin"}}, {UIDs: []uint32{bob}, Match: "*", Rights: []string{"read", "write"}}}, map[uintptr]int{alice: any}},
		{nil, []config.Access{{UIDs: []uint32{alice, bob}, Match: "*", Rights: []string{"admin"}}}, map[uintptr]int{alice: every, bob: every}},
	} {
		if tc.have != nil {
			reload(t, d, func(c *config.Config) { c.Listen.AdminUIDs, c.Access = tc.admins, tc.access })
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
					t.Errorf("%+v: user %d, %s %s: %d, %s; allowed: %t", tc, uid, of.method, of.path, resp.StatusCode, text, want)
				}
			}
			if resp, _ := call(t, c, "GET", "/v1/nothing", ""); (resp.StatusCode == http.StatusForbidden) != (have == none) {
				t.Errorf("%+v: user %d asks for what there is not: %d", tc, uid, resp.StatusCode)
			}
		}
	}
}

// TestAdminSocketKeepsOut: users for whom it has no mode cannot connect to admin.socket.
func TestAdminSocketKeepsOut(t *testing.T) {
	need.Root(t)
	d := start(t, public(t))
	var err error
	daemon.As(t, alice, func() { _, err = net.Dial("unix", config.AdminSocketOf(d.Socket)) })
	if !errors.Is(err, os.ErrPermission) {
		t.Errorf("another user: %v", err)
	}
}
