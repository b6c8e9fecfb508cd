package main

import (
	"bytes"
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/internal/daemon"
)

// here is a daemon in the test's own process: DRAM alone, at a socket in a folder of its own.
type here struct {
	socket string
	log    *said
	ended  chan error
	stop   context.CancelFunc
}

// smallConfig is that of a small daemon without a disk, in a folder that goes with the test.
func smallConfig(t testing.TB, changes ...func(*config.Config)) config.Config {
	t.Helper()
	dir, err := os.MkdirTemp("", "kvstored-test-") // t.TempDir can be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	cfg := config.Default()
	cfg.Listen.Socket, cfg.Admin.Listen = filepath.Join(dir, "kvstored.sock"), ""
	cfg.CPU.Capacity, cfg.CPU.HugePages, cfg.Disk.Capacity = 16<<20, config.HugePagesOff, 0
	cfg.Disk.Paths = []string{filepath.Join(dir, "disk")}
	cfg.Log.Format = "console"
	for _, change := range changes {
		change(&cfg)
	}
	return cfg
}

// serveHere runs a daemon until the test ends. Commands without --socket go to it.
func serveHere(t *testing.T, changes ...func(*config.Config)) *here {
	t.Helper()
	cfg := smallConfig(t, changes...)
	d := &here{socket: cfg.Listen.Socket, log: newSaid(), ended: make(chan error, 1)}
	log, lines := startLog(d.log, cfg.Log)
	t.Cleanup(lines.Close)
	of, err := daemon.New(cfg, daemon.Options{Log: log})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	d.stop = stop
	go func() { d.ended <- of.Run(ctx) }()
	t.Cleanup(func() { d.end(t) })
	t.Setenv("KVSTORED_SOCKET", d.socket)
	return d
}

// end stops the daemon, if it runs.
func (d *here) end(t *testing.T) {
	t.Helper()
	if d.stop == nil {
		return
	}
	d.stop()
	d.stop = nil
	if err := <-d.ended; err != nil {
		t.Errorf("the end of the daemon: %v", err)
	}
}

// fileOf writes a configuration to a file.
func fileOf(t *testing.T, cfg *config.Config) string {
	t.Helper()
	var text bytes.Buffer
	if err := cfg.Print(&text); err != nil {
		t.Fatal(err)
	}
	return write(t, text.String())
}

// said is what a daemon logs, to be waited for.
type said struct {
	mu   sync.Mutex
	text bytes.Buffer
	more chan struct{} // closed by the next line
}

func newSaid() *said { return &said{more: make(chan struct{})} }

func (s *said) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.more)
	s.more = make(chan struct{})
	return s.text.Write(p)
}

// now is what was logged, and a channel that is closed when there is more.
func (s *said) now() (string, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String(), s.more
}

// await returns the log once it has all lines, in whatever order: the line of a request may
// come after the answer.
func (s *said) await(t *testing.T, lines ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		text, more := s.now()
		lines = slices.DeleteFunc(lines, func(line string) bool { return regexp.MustCompile(line).MatchString(text) })
		if len(lines) == 0 {
			return text
		}
		select {
		case <-more:
		case <-ctx.Done():
			t.Fatalf("no line %s in\n%s", strings.Join(lines, ", nor "), text)
		}
	}
}

// A daemon that says nothing to hello is not one that flushes for longer than --timeout.
func TestFlushOfASilentDaemon(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		_ = c.SetReadDeadline(time.Now().Add(100 * time.Millisecond)) // longer than --timeout
		_, _ = io.Copy(io.Discard, c)
		_ = c.Close()
	}()
	fails(t, exitUnreachable, "", "flush", "--timeout", "1ms", "--socket", path)
}
