package daemon

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/internal/database/databasetest"
)

// smallConfig is that of a small daemon with a disk tier, in a folder that goes
// with the test.
func smallConfig(t testing.TB) config.Config {
	t.Helper()
	dir, err := os.MkdirTemp("", "kvstored-test-") // t.TempDir can be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	cfg := config.Default()
	cfg.Listen.Socket, cfg.Admin.Listen = filepath.Join(dir, "kvstored.sock"), ""
	cfg.CPU.Capacity, cfg.CPU.HugePages = 16<<20, config.HugePagesOff
	cfg.Prefetch.Deadline = time.Minute // however slow the machine is
	cfg.Disk.Paths, cfg.Disk.Capacity, cfg.Disk.MinFree = []string{filepath.Join(dir, "disk")}, 256<<20, 0
	if err := os.Mkdir(cfg.Disk.Paths[0], 0o700); err != nil {
		t.Fatal(err)
	}
	return cfg
}

// optionsOf are those of a daemon in this process, as its database is.
func optionsOf(log zerolog.Logger) Options { return Options{Log: log, Database: databasetest.Open} }

// serve runs a daemon in this process until the test ends, and returns when the daemon is
// ready: before, what the disk does not say in time is not stored.
func serve(t *testing.T, cfg config.Config) *Daemon {
	t.Helper()
	d, err := New(cfg, optionsOf(zerolog.Nop()))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("the end of the daemon: %v", err)
		}
	})
	untilReady(t, d)
	return d
}

// untilReady returns when the daemon knows what it has on disk.
func untilReady(t *testing.T, d *Daemon) {
	t.Helper()
	until(t, "it is not ready", func() bool { return d.ready() == nil })
}

// until returns when the daemon has done something by itself.
func until(t *testing.T, not string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal(not)
		}
	}
}
