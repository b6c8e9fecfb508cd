package main

import (
	"context"
	"encoding/hex"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/config"
)

// smallDRAM is 64 MiB, of which one client may lease 25.6 at a time.
func smallDRAM(c *config.Config) { c.CPU.Capacity = 64 << 20 }

// A prompt larger than what one client may hold goes in and comes out in
// parts, also from disk, and other bytes at its very end are told from it.
func TestLongPrompt(t *testing.T) {
	t.Setenv("KVSTORED_SOCKET", startDaemonWith(t, smallDRAM).socket)
	const chunks = 640 // of 64 KiB: 40 MiB
	payload := kv(1, chunks)
	must(t, payload, prompt("put", 1, chunks)...)
	must(t, "", "flush")
	if got := must(t, "", prompt("get", 1, chunks)...); got != payload {
		t.Errorf("%d of %d bytes are back, or others", len(got), len(payload))
	}
	other := payload[:len(payload)-1] + string(payload[len(payload)-1]^1)
	code, out, errs := kvstored(t, other, prompt("put", 1, chunks)...)
	if code != exitFailure || !strings.Contains(errs, "other bytes were stored before for 1 chunk") {
		t.Errorf("put of another last byte: exit code %d, %s%s", code, out, errs)
	}
	must(t, "", "clear", "cpu", "--yes")
	if got := must(t, "", prompt("get", 1, chunks)...); got != payload {
		t.Errorf("from disk %d of %d bytes are back, or others", len(got), len(payload))
	}
}

// A put waits while others hold the room: here until that is too old.
func TestPutWaits(t *testing.T) {
	r := newReloadRig(t, func(c *config.Config) {
		smallDRAM(c)
		c.Lease.MaxAge = time.Second
	})
	t.Setenv("KVSTORED_SOCKET", r.d.socket)
	holder, err := client.Dial(t.Context(), r.d.socket, client.Options{Name: "holder", Space: &adminSpace})
	if err != nil {
		t.Fatal(err)
	}
	defer holder.Close()
	if after, log := r.set(map[string]string{"lease.max_age": "10m"}); !after.LastReloadOK { // of connections from now on
		t.Fatal(log)
	}
	fill, err := holder.Reserve(t.Context(), client.Tokens(make([]uint32, 500)), client.ReserveOptions{Size: adminChunk})
	if err != nil || fill.Len() == 500 || fill.Len() < 400 { // all that there is
		t.Fatalf("the holder has room for %d chunks, %v", fill.Len(), err)
	}
	if out := must(t, kv(1, 8), prompt("put", 1, 8)...); !strings.HasPrefix(out, "stored 8 of 8 chunks") {
		t.Errorf("put beside a client that holds much: %s", out)
	}
}

// A get that finds damage says so, once; then that is not stored.
func TestGetSaysDamaged(t *testing.T) {
	var disk string
	t.Setenv("KVSTORED_SOCKET", startDaemonWith(t, func(c *config.Config) { disk = c.Disk.Paths[0] }).socket)
	first, second := kv(1, 2), kv(2, 3)
	must(t, first, prompt("put", 1, 2)...)
	must(t, second, prompt("put", 2, 3)...)
	must(t, "", "flush")
	must(t, "", "clear", "cpu", "--yes")
	damagePayload(t, disk, first[:adminChunk])
	damagePayload(t, disk, second[adminChunk:][:adminChunk])

	fails(t, exitFailure, "was damaged, and is deleted", prompt("get", 1, 2)...)
	fails(t, exitFailure, "nothing is stored", prompt("get", 1, 2)...)

	code, out, errs := kvstored(t, "", prompt("get", 2, 3)...)
	if code != exitFailure || out != second[:adminChunk] || !strings.Contains(errs, "was damaged, and is deleted") {
		t.Errorf("get of a prompt with damage in its midst: exit code %d, %d bytes, %s", code, len(out), errs)
	}
	if got := must(t, "", prompt("get", 2, 3)...); got != second[:adminChunk] {
		t.Errorf("the same again: %d bytes", len(got))
	}
}

// lookup shows the id of the space that purge takes, and purge takes the flags
// that name it, too.
func TestSpaceIsShown(t *testing.T) {
	t.Setenv("KVSTORED_SOCKET", startDaemon(t))
	id, err := adminSpace.ID()
	if err != nil {
		t.Fatal(err)
	}
	space := hex.EncodeToString(id[:])
	if got := read[lookupResult](t, prompt("lookup", 1, 1)...).Space; got != space {
		t.Errorf("lookup shows the space %q, want %q", got, space)
	}
	if out := must(t, "", prompt("lookup", 1, 1)...); !strings.Contains(out, "space "+space) {
		t.Errorf("lookup does not show the space:\n%s", out)
	}
	must(t, kv(1, 2), prompt("put", 1, 2)...)
	want := purgeResult{Space: space, DryRun: true, Known: 2}
	flags := []string{"purge", "--model", "hands-on", "--chunk-tokens", "1"}
	for _, args := range [][]string{{"purge", space, "--dry-run"}, append(flags, "--dry-run")} {
		if got := read[purgeResult](t, args...); got != want {
			t.Errorf("%v: %+v, want %+v", args, got, want)
		}
	}
	must(t, "", append(flags, "--yes")...)
	fails(t, exitFailure, "nothing is stored", prompt("get", 1, 2)...)
	fails(t, exitUsage, "which space?", "purge", "--yes")
	fails(t, exitUsage, "which space?", "purge", "--salt", "tenant", "--yes")
	fails(t, exitUsage, "either", "purge", space, "--model", "hands-on", "--yes")
	fails(t, exitUsage, "chunk tokens", "purge", "--model", "hands-on", "--chunk-tokens", "0", "--yes")
}

// The first chunk that the disk has no room for is worth a warning, and only
// that.
func TestFirstDropIsLogged(t *testing.T) {
	d := startDaemonWith(t, func(c *config.Config) { c.Disk.MinFree = 1 << 60 })
	t.Setenv("KVSTORED_SOCKET", d.socket)
	for n := range 2 {
		must(t, kv(n, 4), prompt("put", n, 4)...)
		if code, out, errs := kvstored(t, "", "flush"); code != exitFailure {
			t.Errorf("flush without room: exit code %d, %s%s", code, out, errs)
		}
	}
	log, err := os.ReadFile(d.log)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(log), "no room for a chunk"); n != 1 {
		t.Errorf("%d lines about it in the log, want 1:\n%s", n, log)
	}
}

// check says what a configuration comes to.
func TestCheckSummary(t *testing.T) {
	dir := t.TempDir()
	there := write(t, "listen: {socket: "+filepath.Join(dir, "s")+"}\nadmin: {listen: \"\"}\ncpu: {capacity: 1GiB}\ndisk: {paths: ["+dir+", "+dir+"/new], capacity: 1GiB, min_free: 1MiB}\n")
	out := must(t, "", "check", there)
	for _, want := range []string{"# DRAM     1.0 GiB", "leases and fills 410 MiB", "unwritten 205 MiB", "819 MiB in all", dir + ": ", "; made at start", "# remote   none"} {
		if !strings.Contains(out, want) {
			t.Errorf("check does not say %q:\n%s", want, out)
		}
	}
	measured := regexp.MustCompile(`(?m)^# stop: .*$|\d\S* [KMGT]iB free`) // differs from run to run
	if again := must(t, "", "check", write(t, out)); measured.ReplaceAllString(again, "") != measured.ReplaceAllString(out, "") {
		t.Errorf("what check prints is not what it reads:\n%s", again)
	}
}

// Chunks that a put was refused count in stats.
func TestStatsDiffers(t *testing.T) {
	socket := startDaemon(t)
	t.Setenv("KVSTORED_SOCKET", socket)
	must(t, kv(1, 1), prompt("put", 1, 1)...)
	if out := must(t, "", "stats"); strings.Contains(out, "other bytes") {
		t.Errorf("stats tells of other bytes before there were any:\n%s", out)
	}
	err := withClient(context.Background(), socket, client.Options{Space: &adminSpace, Inline: true}, func(c *client.Client) error {
		_, err := c.Put(t.Context(), client.Tokens([]uint32{1}), 0, [][]byte{[]byte("other")})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if out := must(t, "", "stats"); !strings.Contains(out, "1 more with other bytes than were there") {
		t.Errorf("stats does not tell of other bytes:\n%s", out)
	}
}
