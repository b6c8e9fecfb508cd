package main

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kvstored/kvstored/config"
)

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

// TestLog: the log begins with version and settings; at debug it has a line for each request,
// with what came of it and why, and for connections that come and go; in a file it has no
// codes of a terminal.
func TestLog(t *testing.T) {
	d := startDaemonWith(t, func(cfg *config.Config) { cfg.Log.Level, cfg.CPU.Capacity = "debug", 32<<20 })
	t.Setenv("KVSTORED_SOCKET", d.socket)
	must(t, kv(1, 1), prompt("put", 1, 1)...)
	must(t, "", prompt("lookup", 1, 3)...)
	must(t, "", prompt("get", 1, 1)...)
	must(t, "", prompt("warm", 1, 1)...)
	text := awaitLog(t, d,
		`INF starting .*settings=.*cpu\.capacity: 32MiB.* version=`,
		`DBG connected .*connection=\d+ .*mapped=`,
		`DBG lookup .*cpu=1 disk=0 found=1 missing=never_stored remote=0 space=[0-9a-f]{32} tier=none tokens=3 took=`,
		`DBG prefetch .*cpu=1 .*found=1 had=1 .*missing=nothing .*ready_after=.* space=[0-9a-f]{32} .*tokens=1`,
		`DBG request .*op=commit took=`,
		`DBG request .*op=warm took=`,
		`DBG disconnected after=`,
	)
	if strings.Contains(text, "\x1b") {
		t.Errorf("codes of a terminal are in the file: %q", text)
	}
}
