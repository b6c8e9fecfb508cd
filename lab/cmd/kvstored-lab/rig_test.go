package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/rs/zerolog"

	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/internal/daemon"
)

// lab runs one command line.
func lab(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = run(args, &out, &errs)
	return code, out.String(), errs.String()
}

// write writes a file that goes with the test.
func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// serveHere runs a daemon of DRAM alone in the test's own process until the test ends, and
// returns its socket. Commands without --socket go to it.
func serveHere(t *testing.T, changes ...func(*config.Config)) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "kvstored-test-") // t.TempDir can be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	cfg := config.Default()
	cfg.Listen.Socket, cfg.Admin.Listen = filepath.Join(dir, "kvstored.sock"), ""
	cfg.CPU.Capacity, cfg.CPU.HugePages, cfg.Disk.Capacity = 16<<20, config.HugePagesOff, 0
	for _, change := range changes {
		change(&cfg)
	}
	d, err := daemon.New(cfg, daemon.Options{Log: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("the end of the daemon: %v", err)
		}
	})
	t.Setenv("KVSTORED_SOCKET", cfg.Listen.Socket)
	return cfg.Listen.Socket
}
