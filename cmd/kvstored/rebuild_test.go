package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/internal/admin"
)

// TestScrubRebuild: headers that are damaged while the daemon runs are written
// anew by hand, so that all is served byte for byte when the database is lost
// next; no deleted chunk is back.
func TestScrubRebuild(t *testing.T) {
	const prompts, chunks = 6, 4
	var disk string
	d := startDaemonWith(t, func(c *config.Config) { disk = c.Disk.Paths[0] })
	t.Setenv("KVSTORED_SOCKET", d.socket)
	for n := range prompts {
		must(t, kv(n, chunks), prompt("put", n, chunks)...)
	}
	must(t, "", "flush")
	must(t, "", prompt("delete", 2, chunks)...)
	damaged := damageHeaders(t, disk, kv(0, chunks)[:adminChunk], kv(5, chunks)[3*adminChunk:])

	r := read[admin.Rebuilt](t, "scrub", "--rebuild")
	if r.Bytes == 0 || r.Bytes != r.TotalBytes || r.Headers < (prompts-1)*chunks || r.Restored != 0 || r.Dropped != 0 || r.Resealed != uint64(damaged) {
		t.Errorf("rebuild: %+v", r)
	}
	check := func(when string) {
		t.Helper()
		must(t, "", "clear", "cpu", "--yes")
		for n := range prompts {
			if n == 2 {
				continue
			}
			if got := must(t, "", prompt("get", n, chunks)...); got != kv(n, chunks) {
				t.Errorf("%s: %d bytes of prompt %d", when, len(got), n)
			}
		}
		if r := read[lookupResult](t, prompt("lookup", 2, chunks)...); r.MatchedChunks != 0 {
			t.Errorf("%s: of what was deleted %d chunks are back", when, r.MatchedChunks)
		}
	}
	check("after the rebuild")
	if out := must(t, "", "scrub", "--rebuild"); !strings.Contains(out, "0 chunks back, 0 chunks dropped, 0 headers written anew") {
		t.Errorf("of what is in order: %s", out)
	}
	d.kill()
	if err := os.WriteFile(filepath.Join(disk, "badger", "MANIFEST"), []byte("none"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := d.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	awaitRebuilt(t, d.socket)
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

// damageHeaders flips a bit in both copies of the header of each payload, and
// returns how many.
func damageHeaders(t *testing.T, dir string, payloads ...string) int {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "seg-*"))
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, path := range files {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range payloads {
			if at := bytes.Index(b, []byte(p)); at > 0 {
				n++
				for _, off := range []int{at - 4096 + 16, at - 2048 + 16} {
					if _, err := f.WriteAt([]byte{b[off] ^ 1}, int64(off)); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
		f.Close()
	}
	if n != len(payloads) {
		t.Fatalf("%d of %d payloads are there", n, len(payloads))
	}
	return n
}

// TestScrubRebuildIsRefused: each wrong way to ask for a rebuild is told so, and
// costs nothing.
func TestScrubRebuildIsRefused(t *testing.T) {
	d := startDaemonWith(t, func(c *config.Config) { c.Disk.Capacity = 0 })
	t.Setenv("KVSTORED_SOCKET", d.socket)
	must(t, kv(1, 2), prompt("put", 1, 2)...)
	fails(t, exitFailure, "there is no disk tier", "scrub", "--rebuild")
	fails(t, exitUsage, "--rate", "scrub", "--rebuild", "--rate", "1GiB")
	fails(t, exitUsage, "", "scrub", "--rebuild", "disk")
	fails(t, exitUsage, "", "scrub", "--rebuild=perhaps")
	fails(t, exitUnreachable, "", "scrub", "--rebuild", "--socket", d.socket+".not")
	if got := must(t, "", prompt("get", 1, 2)...); got != kv(1, 2) {
		t.Errorf("%d bytes are left", len(got))
	}
}
