package daemon

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/rs/zerolog"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/internal/admin"
	"github.com/kvstored/kvstored/internal/database/databasetest"
	"github.com/kvstored/kvstored/internal/test/logtest"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

var testSpace = key.Space{Model: "m", World: 1, DType: "x", ChunkTokens: 4, Method: key.SHA256}

func dial(t *testing.T, d *Daemon) *client.Client {
	t.Helper()
	c, err := client.Dial(t.Context(), d.cfg.Listen.Socket, client.Options{Space: &testSpace})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// TestRun: a daemon in this process serves until its context ends, writes all
// unwritten chunks, and leaves no socket; the next one finds them.
func TestRun(t *testing.T) {
	cfg := smallConfig(t)
	cfg.Admin.Listen = "127.0.0.1:0"
	prompt, payload := client.Tokens([]uint32{1, 2, 3, 4}), []byte("payload")
	for run := range 2 {
		var log logtest.Book
		d, err := New(cfg, optionsOf(zerolog.New(&log)))
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- d.Run(ctx) }()
		untilReady(t, d) // the second one reads what the first has written
		c := dial(t, d)
		if run == 0 {
			if _, err := c.Put(ctx, prompt, 0, [][]byte{payload}); err != nil {
				t.Fatal(err)
			}
		}
		if !page(t, d, "/readyz", http.StatusOK, "ready\n") {
			t.Errorf("run %d: the page does not say that the daemon is ready", run)
		}
		chunks, err := c.Get(ctx, prompt, client.GetOptions{})
		if err != nil || len(chunks) != 1 || !bytes.Equal(chunks[0].Bytes, payload) {
			t.Errorf("run %d: %d chunks, %v", run, len(chunks), err)
		}
		page(t, d, "/healthz", http.StatusOK, "ok\n")
		if !page(t, d, "/metrics", http.StatusOK, "kvstored_tier_entries{tier=\"disk\"}") {
			t.Errorf("run %d: the metrics have no disk", run)
		}
		if !page(t, d, "/metrics", http.StatusOK, fmt.Sprintf("kvstored_disk_path_available_bytes{path=%q}", cfg.Disk.Paths[0])) {
			t.Errorf("run %d: /metrics has no folder of the disk", run)
		}
		stop()
		if err := <-ended; err != nil {
			t.Errorf("run %d ends with %v", run, err)
		}
		if !strings.Contains(log.String(), "flushed") {
			t.Errorf("run %d has not flushed:\n%s", run, log.String())
		}
		if _, err := os.Lstat(cfg.Listen.Socket); err == nil {
			t.Errorf("run %d leaves its socket", run)
		}
	}
}

// page reports whether a page of the admin listener has a text.
func page(t *testing.T, d *Daemon, path string, code int, has string) bool {
	t.Helper()
	status, text := fetchPage(t, d, path)
	return status == code && strings.Contains(text, has)
}

// fetchPage is the status and the text of a page.
func fetchPage(t *testing.T, d *Daemon, path string) (int, string) {
	t.Helper()
	resp, err := http.Get("http://" + d.pages.Addr().String() + path)
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

// TestNewLeavesNothing: what cannot be made is an error that names its key, and
// all that was made before it is gone, so that a good configuration works.
func TestNewLeavesNothing(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	good := smallConfig(t)
	for names, change := range map[string]func(*config.Config){
		"admin.socket":              func(c *config.Config) { c.Admin.Socket = good.Listen.Socket + "-none/s" },
		"admin.listen":              func(c *config.Config) { c.Admin.Listen = taken.Addr().String() },
		"listen.resp":               func(c *config.Config) { c.Listen.RESP = []string{taken.Addr().String()} },
		"listen.resp_password_file": func(c *config.Config) { c.Listen.RESPPasswordFile = "/nonexistent" },
		"cpu.policy":                func(c *config.Config) { c.CPU.Policy = "none" },
		"disk":                      func(c *config.Config) { c.Disk.Paths = []string{good.Listen.Socket + "-file"} },
	} {
		cfg := good
		if err := os.WriteFile(good.Listen.Socket+"-file", nil, 0o600); err != nil { // a file for a folder
			t.Fatal(err)
		}
		change(&cfg)
		if _, err := New(cfg, optionsOf(zerolog.Nop())); err == nil || !strings.Contains(err.Error(), names) {
			t.Errorf("%s: %v", names, err)
		}
		if _, err := os.Lstat(cfg.Listen.Socket); err == nil {
			t.Errorf("%s: the socket is left", names)
		}
	}
	d := serve(t, good)
	if _, err := dial(t, d).Stats(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestReload: a hangup applies the file, also the part that takes a restart is
// told, and a wrong file changes nothing.
func TestReload(t *testing.T) {
	cfg := smallConfig(t)
	cfg.Disk.Capacity = 0
	file := cfg.Listen.Socket + ".yaml"
	write := func(change func(*config.Config)) {
		next := cfg
		change(&next)
		var text bytes.Buffer
		if err := errors.Join(next.Print(&text), os.WriteFile(file, text.Bytes(), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	write(func(*config.Config) {})
	hangups := make(chan os.Signal)
	d, err := New(cfg, Options{Database: databasetest.Open, Log: zerolog.Nop(), File: file, Hangups: hangups})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	defer func() { stop(); <-ended }()
	c := dial(t, d)
	// reload returns what the daemon says of its configuration after a hangup.
	reload := func() (st admin.Config) {
		hangups <- syscall.SIGHUP
		hangups <- syscall.SIGHUP // taken once the first reload is over
		raw, err := c.Stats(ctx)
		if err == nil {
			err = json.Unmarshal(raw, &struct{ Config *admin.Config }{&st})
		}
		if err != nil {
			t.Fatal(err)
		}
		return st
	}
	write(func(c *config.Config) { c.CPU.Policy, c.CPU.Capacity = "s3fifo", 32<<20 })
	st := reload()
	if !st.LastReloadOK || len(st.NeedsRestart) != 1 || st.NeedsRestart[0].Path != "cpu.capacity" || !strings.Contains(st.Running, "s3fifo") {
		t.Errorf("a good file: %+v", st)
	}
	if name, ok := d.store.Operator.PolicyOf(tier.CPU); !ok || name != "s3fifo" {
		t.Errorf("the policy is %q", name)
	}
	if err := os.WriteFile(file, []byte("cpu: {policy: lru, high_watermark: 7}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if st := reload(); st.LastReloadOK || st.ReloadsBad == 0 || !strings.Contains(st.Running, "s3fifo") {
		t.Errorf("a bad file: %+v", st)
	}
}
