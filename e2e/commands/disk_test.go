package commands_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/zeebo/xxh3"

	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/e2e/daemon"
	"github.com/kvstored/kvstored/internal/admin"
	"github.com/kvstored/kvstored/policy"
	"github.com/kvstored/kvstored/tier"
)

// TestDisk: what commands do where there is a disk, in a folder that the start has made.
func TestDisk(t *testing.T) {
	d := daemon.Folder(t, small, func(c *config.Config) {
		c.Disk.Paths[0] += "/made/at-start"
		c.Log.Format = "json"
	})
	d.Disk += "/made/at-start"
	t.Setenv("KVSTORED_SOCKET", d.Socket)
	if code, out, errs := daemon.Run(t, "", "check", d.Config); code != daemon.ExitOK || errs != "" {
		t.Errorf("check before the start: exit code %d, %s%s", code, out, errs)
	}
	d.Start()
	t.Run("flush and scrub", flushAndScrub)
	t.Run("policies", policies)
	t.Run("damage", func(t *testing.T) { clearAndScrub(t, d) })
	t.Run("get says damaged", func(t *testing.T) { getSaysDamaged(t, d) })
	t.Run("promote", promote)
	t.Run("spaces", spaces)
	t.Run("a scrub ends", func(t *testing.T) { scrubEnds(t, d) }) // with the daemon, at last
}

// TestRefusedFolders: what is wrong with a folder check and serve say in the same words.
func TestRefusedFolders(t *testing.T) {
	other := start(t)
	for want, folder := range map[string]func(dir string) string{
		"in use by another process": func(string) string { return other.Disk },
		"not a directory":           func(string) string { return write(t, "precious") + "/disk" },
		"name the folder of the database first": func(dir string) string {
			marker := fmt.Sprintf("kvstored-disk 2\nset abc\npath 2\nsecret %064x\nepoch 1\n", 0)
			marker += fmt.Sprintf("sum %016x\n", xxh3.HashString(marker))
			if err := os.WriteFile(filepath.Join(dir, "kvstored.format"), []byte(marker), 0o600); err != nil {
				t.Fatal(err)
			}
			return dir
		},
	} {
		d := daemon.Folder(t, small)
		d.Configure(func(c *config.Config) { c.Disk.Paths, c.Write.Mode = []string{folder(d.Disk)}, config.WriteThrough })
		fails(t, daemon.ExitFailure, want, "check", d.Config)
		d.Launch()
		if err := d.Wait(); err == nil || !strings.Contains(d.Said(), want) {
			t.Errorf("serve: %v, want %q in\n%s", err, want, d.Said())
		}
	}
}

// flushAndScrub: what is put is on disk after a flush, and a scrub reads it.
func flushAndScrub(t *testing.T) {
	payload := strings.Repeat("0123456789", 1000)[:9999]
	daemon.Must(t, payload, "put", "--text", "You are a helpful assistant.", "--chunk-tokens", "8")
	if out := daemon.Must(t, "", "flush", "--durable"); !strings.Contains(out, "on disk") {
		t.Errorf("flush: %s", out)
	}
	if s := daemon.MustJSON[admin.Scrubbed](t, "scrub", "--rate", "1GiB"); s.Chunks != 4 || s.Wrong != 0 {
		t.Errorf("scrub: %+v", s)
	}
	daemon.Must(t, "", "forget", "--tier", "cpu,disk", "--yes")
}

func tiers(t *testing.T) map[string]tier.Stats {
	t.Helper()
	return daemon.MustJSON[struct {
		Store struct{ Tiers map[string]tier.Stats }
	}](t, "stats").Store.Tiers
}

// policies: every policy takes the disk over from the one before, and not an entry is lost.
func policies(t *testing.T) {
	const chunks = 16
	daemon.Must(t, kv(1, chunks), prompt("put", 1, chunks)...)
	daemon.Must(t, "", "flush")
	for _, name := range append(policy.All(), "lru") {
		if r := daemon.MustJSON[admin.Policies](t, "policy", "set", "disk", name); r.Tiers["disk"] != name || !slices.Equal(r.Names, policy.All()) {
			t.Errorf("policy set disk %s: %+v", name, r)
		}
		if st := tiers(t)["disk"]; st.Entries != chunks || st.Evictions != 0 || st.Policy != name {
			t.Errorf("after policy set disk %s: %d entries, %d evictions, %s", name, st.Entries, st.Evictions, st.Policy)
		}
	}
	daemon.Must(t, "", "forget", "--tier", "cpu,disk", "--yes")
}

// clearAndScrub: DRAM is emptied and filled from disk; damage on disk is found, ends the
// prefix, and heals when the prompt is stored again.
func clearAndScrub(t *testing.T, d *daemon.Daemon) {
	const chunks = 4
	payload := kv(1, chunks)
	daemon.Must(t, payload, prompt("put", 1, chunks)...)
	daemon.Must(t, "", "flush")
	if r := daemon.MustJSON[admin.Forgotten](t, "forget", "--tier", "cpu", "--yes"); r.Chunks != chunks {
		t.Errorf("clear cpu: %d chunks", r.Chunks)
	}
	if r := daemon.MustJSON[matched](t, prompt("lookup", 1, chunks)...); r.Tiers["cpu"].Chunks != 0 || r.Tiers["disk"].Chunks != chunks {
		t.Errorf("after clear cpu: %+v", r)
	}
	damage(t, d.Disk, inPayload, payload[2*chunkBytes:][:chunkBytes])
	code, out, _ := daemon.Run(t, "", "scrub", "--json")
	var s admin.Scrubbed
	if err := json.Unmarshal([]byte(out), &s); err != nil || code != daemon.ExitFailure || s.Wrong != 1 || s.Chunks != chunks {
		t.Errorf("scrub: exit code %d, %s, %v", code, out, err)
	}
	if r := daemon.MustJSON[matched](t, prompt("lookup", 1, chunks)...); r.Chunks != 2 {
		t.Errorf("with a hole: %+v", r)
	}
	if got := daemon.Must(t, "", prompt("get", 1, chunks)...); got != payload[:2*chunkBytes] {
		t.Errorf("with a hole: %d bytes", len(got))
	}
	r := daemon.MustJSON[struct {
		Stored int `json:"stored_chunks"`
		There  int `json:"present_chunks"`
		Other  int `json:"different_chunks"`
	}](t, append(prompt("put", 1, chunks), write(t, payload))...)
	if r.Stored != 1 || r.There != 3 || r.Other != 0 {
		t.Errorf("put into the hole: %+v", r)
	}
	if got := daemon.Must(t, "", prompt("get", 1, chunks)...); got != payload {
		t.Errorf("healed: %d bytes", len(got))
	}
	daemon.Must(t, "", "flush")
	if s := daemon.MustJSON[admin.Scrubbed](t, "scrub"); s.Wrong != 0 || s.Chunks != chunks {
		t.Errorf("scrub after that: %+v", s)
	}
	if r := daemon.MustJSON[admin.Forgotten](t, "forget", "--tier", "cpu,disk", "--yes"); r.Chunks != chunks {
		t.Errorf("clear: %d chunks", r.Chunks)
	}
	for at, st := range tiers(t) {
		if st.Entries != 0 {
			t.Errorf("%s has %d entries", at, st.Entries)
		}
	}
}

// getSaysDamaged: a get that finds damage says so, once; then that is not stored.
func getSaysDamaged(t *testing.T, d *daemon.Daemon) {
	first, second := kv(3, 2), kv(4, 3)
	daemon.Must(t, first, prompt("put", 3, 2)...)
	daemon.Must(t, second, prompt("put", 4, 3)...)
	daemon.Must(t, "", "flush")
	daemon.Must(t, "", "forget", "--tier", "cpu", "--yes")
	damage(t, d.Disk, inPayload, first[:chunkBytes], second[chunkBytes:][:chunkBytes])

	fails(t, daemon.ExitFailure, "was damaged, and is deleted", prompt("get", 3, 2)...)
	fails(t, daemon.ExitFailure, "nothing is stored", prompt("get", 3, 2)...)

	code, out, errs := daemon.Run(t, "", prompt("get", 4, 3)...)
	if code != daemon.ExitFailure || out != second[:chunkBytes] || !strings.Contains(errs, "was damaged, and is deleted") {
		t.Errorf("get of a prompt with damage in its midst: exit code %d, %d bytes, %s", code, len(out), errs)
	}
	if got := daemon.Must(t, "", prompt("get", 4, 3)...); got != second[:chunkBytes] {
		t.Errorf("the same again: %d bytes", len(got))
	}
	daemon.Must(t, "", "forget", "--tier", "cpu,disk", "--yes")
}

// promote: a prompt comes up from disk before it is asked for.
func promote(t *testing.T) {
	prompt := []string{"--text", strings.Repeat("warm me ", 100)}
	daemon.Must(t, strings.Repeat("x", 8192), append([]string{"put"}, prompt...)...)
	daemon.Must(t, "", "flush")
	daemon.Must(t, "", "forget", "--tier", "cpu", "--yes")
	r := daemon.MustJSON[struct {
		Chunks int `json:"ready_chunks"`
		Tiers  map[string]struct {
			Chunks int `json:"chunks"`
		} `json:"tiers"`
		Done   bool   `json:"done"`
		Reason string `json:"reason"`
	}](t, append([]string{"lookup", "--promote"}, prompt...)...)
	if r.Chunks != 4 || r.Tiers["disk"].Chunks != 4 || !r.Done || r.Reason != "ok" {
		t.Errorf("warmed %+v", r)
	}
	if out := daemon.Must(t, "", append([]string{"lookup", "--promote"}, prompt...)...); !strings.Contains(out, "were in DRAM") {
		t.Errorf("again: %q", out)
	}
	daemon.Must(t, "", "forget", "--tier", "cpu,disk", "--yes")
}

// spaces: a space's bytes on disk are those of its payloads and a little more, until it is
// purged.
func spaces(t *testing.T) {
	daemon.Must(t, kv(2, 2), prompt("put", 2, 2, "--model", "other")...)
	daemon.Must(t, "", "flush")
	row := func() admin.Space {
		t.Helper()
		all := daemon.MustJSON[admin.Spaces](t, "list", "spaces").Spaces
		i := slices.IndexFunc(all, func(s admin.Space) bool { return s.Opened.Model == "other" })
		if i < 0 {
			t.Fatalf("%+v", all)
		}
		return all[i]
	}
	r := row()
	if r.Chunks != 2 || r.HotBytes != 2*chunkBytes || r.DiskBytes <= 2*chunkBytes || r.DiskBytes > 2*(chunkBytes+8<<10) {
		t.Errorf("%+v", r)
	}
	daemon.Must(t, "", "forget", "--space", r.Space, "--yes")
	if r := row(); r.Chunks != 0 || r.HotBytes != 0 || r.DiskBytes != 0 {
		t.Errorf("after the purge: %+v", r)
	}
}

// scrubEnds: a scrub is among the jobs, ends with its client, and with the daemon, which
// it does not hold up.
func scrubEnds(t *testing.T, d *daemon.Daemon) {
	daemon.Must(t, kv(1, 4), prompt("put", 1, 4)...)
	daemon.Must(t, "", "flush")
	c := admin.NewClient(config.AdminSocketOf(d.Socket), 0)
	defer c.Close()
	ended := make(chan error, 1)
	begin := func(ctx context.Context) {
		t.Helper()
		go func() {
			ended <- c.Do(ctx, "POST", "/v1/scrub", admin.ScrubRequest{BytesPerSecond: 1}, new(admin.Scrubbed))
		}()
		for !strings.Contains(daemon.Must(t, "", "list", "jobs"), "comparing checksums in disk: ") {
			select {
			case err := <-ended:
				t.Fatalf("the scrub has ended: %v", err)
			case <-time.After(10 * time.Millisecond):
			}
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	begin(ctx)
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the client that leaves: %v", err)
	}
	d.AwaitSaid(`"call":"POST /v1/scrub"`)
	begin(t.Context())
	d.Stop()
	if err := <-ended; !errors.Is(err, admin.Stopping) && !errors.Is(err, admin.ErrGone) {
		t.Errorf("the stop: %v", err)
	}
}

// TestFirstDropIsLogged: the first chunk that the disk has no room for is worth a warning,
// and only that.
func TestFirstDropIsLogged(t *testing.T) {
	d := start(t, func(c *config.Config) { c.Disk.MinFree = 1 << 60 })
	for n := range 2 {
		daemon.Must(t, kv(n, 4), prompt("put", n, 4)...)
		fails(t, daemon.ExitFailure, "", "flush")
	}
	if n := strings.Count(d.Said(), "no room for a chunk"); n != 1 {
		t.Errorf("%d lines about it in the log, want 1:\n%s", n, d.Said())
	}
}
