package commands_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/e2e/daemon"
	"github.com/kvstored/kvstored/internal/admin"
)

// TestScrubRebuild: headers that are damaged while the daemon runs are written anew by
// hand, so that all is served byte for byte when the database is lost next; no deleted
// chunk is back.
func TestScrubRebuild(t *testing.T) {
	const prompts, chunks = 6, 4
	d := start(t)
	for n := range prompts {
		daemon.Must(t, kv(n, chunks), prompt("put", n, chunks)...)
	}
	daemon.Must(t, "", "flush")
	daemon.Must(t, "", prompt("delete", 2, chunks)...)
	damage(t, d.Disk, inHeaders, kv(0, chunks)[:chunkBytes], kv(5, chunks)[3*chunkBytes:])

	r := daemon.MustJSON[admin.Rebuilt](t, "scrub", "--rebuild")
	if r.Bytes == 0 || r.Bytes != r.TotalBytes || r.Headers < (prompts-1)*chunks || r.Restored != 0 || r.Dropped != 0 || r.Resealed != 2 {
		t.Errorf("rebuild: %+v", r)
	}
	check := func(when string) {
		t.Helper()
		daemon.Must(t, "", "clear", "cpu", "--yes")
		for n := range prompts {
			if n == 2 {
				continue
			}
			if got := daemon.Must(t, "", prompt("get", n, chunks)...); got != kv(n, chunks) {
				t.Errorf("%s: %d bytes of prompt %d", when, len(got), n)
			}
		}
		if r := daemon.MustJSON[matched](t, prompt("lookup", 2, chunks)...); r.Chunks != 0 {
			t.Errorf("%s: of what was deleted %d chunks are back", when, r.Chunks)
		}
	}
	check("after the rebuild")
	if out := daemon.Must(t, "", "scrub", "--rebuild"); !strings.Contains(out, "0 chunks back, 0 chunks dropped, 0 headers written anew") {
		t.Errorf("of what is in order: %s", out)
	}
	d.Kill()
	if err := os.WriteFile(filepath.Join(d.Disk, "badger", "MANIFEST"), []byte("none"), 0o600); err != nil {
		t.Fatal(err)
	}
	d.Start()
	awaitRebuilt(t, d.Socket)
	check("without the database")
}

// awaitRebuilt waits for the rebuild that a start began by itself.
func awaitRebuilt(t *testing.T, socket string) {
	t.Helper()
	c := admin.NewClient(config.AdminSocketOf(socket), 0)
	defer c.Close()
	for {
		var r admin.Rebuilt
		if err := c.Get(t.Context(), "/v1/rebuild", &r); err != nil {
			t.Fatal(err)
		}
		if !r.Running {
			if r.Restored == 0 {
				t.Errorf("it did %+v", r)
			}
			return
		}
	}
}
