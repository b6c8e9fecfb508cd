package main

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/internal/database"
)

// commandVar has the test's program be kvstored, for commands of other users.
const commandVar = "KVSTORED_TEST_COMMAND"

// TestMain lets tests start a daemon as the demo does: this program is then
// the test's own. So it is where it is called by that name.
func TestMain(m *testing.M) {
	database.Main()
	if len(os.Args) > 1 && (slices.Contains([]string{"serve", "keep", "route"}, os.Args[1]) || os.Getenv(commandVar) != "" || filepath.Base(os.Args[0]) == "kvstored") {
		os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

// startDaemon runs a daemon for one test and returns its socket.
func startDaemon(t *testing.T) string {
	t.Helper()
	return startDaemonWith(t, func(*config.Config) {}).socket
}

// daemonFolder makes a daemon in a folder of its own, which goes with the test.
func daemonFolder(t *testing.T) *demoDaemon {
	t.Helper()
	dir, err := os.MkdirTemp("", "kvstored-test-") // t.TempDir can be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	d, err := newDemoDaemon(dir)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// configure has cfg count from the daemon's next start on.
func configure(t *testing.T, d *demoDaemon, cfg *config.Config) {
	t.Helper()
	var text bytes.Buffer
	if err := errors.Join(cfg.Print(&text), os.WriteFile(d.config, text.Bytes(), 0o600)); err != nil {
		t.Fatal(err)
	}
}

// startDaemonWith runs a daemon with another configuration for one test.
func startDaemonWith(t *testing.T, change func(*config.Config)) *demoDaemon {
	t.Helper()
	d := daemonFolder(t)
	cfg, err := config.Load(d.config, nil, config.Rules{})
	if err != nil {
		t.Fatal(err)
	}
	change(&cfg)
	configure(t, d, &cfg)
	if _, err := d.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.kill)
	return d
}

// awaitLog returns the log of a daemon once it has the lines: that of a request or of a
// connection's end may come after the answer to the client.
func awaitLog(t *testing.T, d *demoDaemon, lines ...string) string {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(demoStartPoll) {
		text, err := os.ReadFile(d.log)
		if err != nil {
			t.Fatal(err)
		}
		lines = slices.DeleteFunc(lines, func(line string) bool { return regexp.MustCompile(line).Match(text) })
		if len(lines) == 0 {
			return string(text)
		}
		if time.Now().After(end) {
			t.Fatalf("no line %s in\n%s", strings.Join(lines, ", nor "), text)
		}
	}
}

// freePort is an address that was free a moment ago, with a port that the kernel gives to
// nobody who asks for any: other tests do so all the time.
func freePort(t *testing.T) string {
	t.Helper()
	for range 100 {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 20_000+rand.IntN(12_000)))
		if err == nil {
			defer l.Close()
			return l.Addr().String()
		}
	}
	t.Fatal("no port from 20000 to 32000 is free")
	return ""
}
