package main

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/kvstored/kvstored/config"
)

// startFronts runs a daemon with a Redis front end on a socket and on TCP.
func startFronts(t *testing.T) (d *demoDaemon, socket, port string) {
	t.Helper()
	d = startDaemonWith(t, func(cfg *config.Config) {
		dir := filepath.Dir(cfg.Listen.Socket)
		socket = filepath.Join(dir, "resp.sock")
		cfg.Listen.RESP = []string{socket, "127.0.0.1:0"}
		cfg.Listen.RESPPasswordFile = filepath.Join(dir, "password")
		cfg.CPU.Capacity, cfg.Prefetch.Deadline = 256<<20, time.Minute // in which a value is read of a slow disk
		if err := os.WriteFile(cfg.Listen.RESPPasswordFile, []byte("secret\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	})
	return d, socket, loggedPort(t, d)
}

var loggedAddress = regexp.MustCompile(`127\.0\.0\.1:(\d+)\D`)

// loggedPort waits for the TCP port in the daemon's log.
func loggedPort(t *testing.T, d *demoDaemon) string {
	t.Helper()
	for end := time.Now().Add(demoStartTimeout); ; time.Sleep(demoStartPoll) {
		log, err := os.ReadFile(d.log)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range loggedAddress.FindAllSubmatch(log, -1) {
			if port := string(m[1]); port != "0" { // that is the setting
				return port
			}
		}
		if time.Now().After(end) {
			t.Fatalf("the log names no port:\n%s", log)
		}
	}
}
