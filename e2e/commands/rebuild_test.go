package commands_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/kvstored/kvstored/e2e/daemon"
)

// TestRebuild: headers that are damaged are written anew by the start after an order to,
// so that all is served byte for byte when the database is lost next; no deleted chunk is
// back.
func TestRebuild(t *testing.T) {
	const prompts, chunks = 6, 4
	d := start(t)
	for n := range prompts {
		daemon.Must(t, kv(n, chunks), prompt("put", n, chunks)...)
	}
	daemon.Must(t, "", "flush")
	daemon.Must(t, "", prompt("forget", 2, chunks, "--yes")...)
	d.Stop()
	damage(t, d.Disk, inHeaders, kv(0, chunks)[:chunkBytes], kv(5, chunks)[3*chunkBytes:])
	if err := os.WriteFile(filepath.Join(d.Disk, "kvstored.rebuild"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	d.Start()
	check := func(when string) {
		t.Helper()
		daemon.Must(t, "", "forget", "--tier", "cpu", "--yes")
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
	d.Kill()
	if err := os.WriteFile(filepath.Join(d.Disk, "badger", "MANIFEST"), []byte("none"), 0o600); err != nil {
		t.Fatal(err)
	}
	d.Start()
	check("without the database")
}
