package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/internal/admin"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/policy"
	"github.com/kvstored/kvstored/tier"
)

// adminChunk is the payload of a chunk here: large enough for an extent.
const adminChunk = 64 << 10

// adminSpace is what prompt's flags say.
var adminSpace = key.Space{Model: "hands-on", DType: "bytes", World: 1, ChunkTokens: 1, Method: key.SHA256}

// prompt is a command with the flags for prompt number n of so many chunks, none of
// which another number has.
func prompt(command string, n, chunks int, more ...string) []string {
	tokens := strings.TrimSuffix(strings.Repeat(fmt.Sprintf("%d,", n), chunks), ",")
	return append([]string{command, "--chunk-tokens", "1", "--tokens", tokens}, more...)
}

// kv is the payload stored for prompt n.
func kv(n, chunks int) string { return string(noise(n, chunks*adminChunk)) }

func noise(seed, n int) []byte {
	b := make([]byte, n)
	rand.NewChaCha8([32]byte{byte(seed)}).Read(b) // never fails
	return b
}

// must runs a command that has to work and returns its output.
func must(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	code, out, errs := kvstored(t, stdin, args...)
	if code != exitOK {
		t.Fatalf("%v: exit code %d, %s", args, code, errs)
	}
	return out
}

// read runs a command with --json into v.
func read[T any](t *testing.T, args ...string) (v T) {
	t.Helper()
	if err := json.Unmarshal([]byte(must(t, "", append(args, "--json")...)), &v); err != nil {
		t.Fatalf("%v: %v", args, err)
	}
	return v
}

func tiersNow(t *testing.T) map[string]tier.Stats {
	t.Helper()
	return read[struct {
		Store struct{ Tiers map[string]tier.Stats }
	}](t, "stats").Store.Tiers
}

// fails checks what a command says that must not work.
func fails(t *testing.T, code int, says string, args ...string) {
	t.Helper()
	got, out, errs := kvstored(t, "", args...)
	if got != code || !strings.Contains(errs, says) {
		t.Errorf("%v: exit code %d, want %d; it says %q, want %q; and prints %q", args, got, code, errs, says, out)
	}
}

// TestPinsAndRevoke: what keeps chunks from eviction can be seen and ended
// from outside.
func TestPinsAndRevoke(t *testing.T) {
	socket := startDaemon(t)
	t.Setenv("KVSTORED_SOCKET", socket)
	must(t, kv(1, 4), prompt("put", 1, 4)...)
	if out := must(t, "", "pins"); out != "nothing is pinned\n" {
		t.Errorf("pins of nobody: %s", out)
	}
	c, err := client.Dial(t.Context(), socket, client.Options{Name: "holder", Space: &adminSpace})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	tokens := client.Tokens([]uint32{1, 1, 1, 1})
	for _, name := range []string{"a", "b"} {
		if _, err := c.Pin(t.Context(), tokens, name, 0); err != nil {
			t.Fatal(err)
		}
	}
	job, err := c.Prefetch(t.Context(), tokens, client.PrefetchOptions{})
	if err != nil {
		t.Fatal(err)
	}

	p := read[admin.Pins](t, "pins")
	if len(p.Pins) != 2 || p.Pins[0].Name != "a" || p.Pins[0].Chunks != 4 || p.Pins[0].Bytes != 4*adminChunk || p.Pins[0].ExpiresSeconds <= 0 ||
		len(p.Holders) != 1 || p.Holders[0].Name != "holder" || p.Holders[0].LeaseBytes != 4*adminChunk || p.Holders[0].PinBytes != 4*adminChunk {
		t.Errorf("pins %+v", p)
	}
	if out := must(t, "", "pins"); !strings.Contains(out, "holder") || !strings.Contains(out, "256 KiB") {
		t.Errorf("pins:\n%s", out)
	}
	for _, tt := range []struct {
		args  []string
		freed uint64
	}{
		{[]string{"revoke", "a"}, 4}, {[]string{"revoke", "--all"}, 4},
		{[]string{"revoke", "--connection", fmt.Sprint(p.Holders[0].Connection)}, 4}, // its lease
	} {
		if r := read[admin.Chunks](t, tt.args...); r.Chunks != tt.freed {
			t.Errorf("%v freed %d chunks, want %d", tt.args, r.Chunks, tt.freed)
		}
	}
	if err := job.Release(t.Context()); !strings.Contains(fmt.Sprint(err), "revoked") {
		t.Errorf("the holder's release: %v", err)
	}
	if out := must(t, "", "pins"); out != "nothing is pinned\n" {
		t.Errorf("pins after that: %s", out)
	}
	fails(t, exitUsage, "one of them only", "revoke")
	fails(t, exitUsage, "one of them only", "revoke", "a", "--all")
	fails(t, exitFailure, `kvstored: revoke: not_found: there is no connection 1000000;`, "revoke", "--connection", "1000000")
	fails(t, exitFailure, `nothing is pinned as "a"`, "revoke", "a")
	must(t, "", "revoke", "--all")
}

// TestPolicySet: while a client is at work every policy takes the tiers over
// from the one before, and not an entry is lost.
func TestPolicySet(t *testing.T) {
	socket := startDaemon(t)
	t.Setenv("KVSTORED_SOCKET", socket)
	const prompts, chunks = 8, 16
	for n := range prompts {
		must(t, kv(n, chunks), prompt("put", n, chunks)...)
	}
	must(t, "", "flush")

	ctx, stop := context.WithCancel(t.Context())
	working := make(chan error, 1)
	go func() { working <- work(ctx, socket, prompts, chunks) }() // ends with ctx
	for _, name := range append(policy.All(), "lru") {
		for _, of := range []string{"cpu", "disk"} {
			if r := read[admin.Policies](t, "policy", "set", of, name); r.Tiers[of] != name || !slices.Equal(r.Names, policy.All()) {
				t.Errorf("policy set %s %s: %+v", of, name, r)
			}
			for at, st := range tiersNow(t) {
				if st.Entries != prompts*chunks || st.Evictions != 0 || at == of && st.Policy != name {
					t.Errorf("%s after policy set %s %s: %d entries, %d evictions, %s", at, of, name, st.Entries, st.Evictions, st.Policy)
				}
			}
		}
	}
	stop()
	if err := <-working; err != nil {
		t.Errorf("the client at work: %v", err)
	}
	for n := range prompts {
		if must(t, "", prompt("get", n, chunks)...) != kv(n, chunks) {
			t.Errorf("prompt %d has other bytes", n)
		}
	}
	if out := must(t, "", "policy", "show"); !strings.Contains(out, "lru") || !strings.Contains(out, "s3fifo") {
		t.Errorf("policy show:\n%s", out)
	}
	fails(t, exitFailure, "no-such-policy", "policy", "set", "cpu", "no-such-policy")
	fails(t, exitFailure, "", "policy", "set", "remote", "lru")
	fails(t, exitUsage, "no tier", "policy", "set", "tape", "lru")
	fails(t, exitUsage, "", "policy", "set", "cpu")
}

// work reads prompts again and again.
func work(ctx context.Context, socket string, prompts, chunks int) error {
	c, err := client.Dial(ctx, socket, client.Options{Space: &adminSpace})
	if err != nil {
		return err
	}
	defer c.Close()
	for n := 0; ctx.Err() == nil; n = (n + 1) % prompts {
		j, err := c.Prefetch(ctx, client.Tokens(slices.Repeat([]uint32{uint32(n)}, chunks)), client.PrefetchOptions{})
		if err == nil {
			err = j.Release(ctx)
		}
		if err != nil && ctx.Err() == nil {
			return err
		}
	}
	return nil
}

// TestClearAndScrub: DRAM is emptied and filled from disk; damage on disk is
// found, ends the prefix, and heals when the prompt is stored again.
func TestClearAndScrub(t *testing.T) {
	var disk string
	d := startDaemonWith(t, func(c *config.Config) { disk = c.Disk.Paths[0] })
	t.Setenv("KVSTORED_SOCKET", d.socket)
	const chunks = 4
	payload := kv(1, chunks)
	must(t, payload, prompt("put", 1, chunks)...)
	must(t, "", "flush")
	fails(t, exitUsage, "--yes", "clear")
	fails(t, exitUsage, "no tier", "clear", "tape", "--yes")
	fails(t, exitFailure, "there is no remote tier", "clear", "remote", "--yes")
	if r := read[admin.Chunks](t, "clear", "cpu", "--yes"); r.Chunks != chunks {
		t.Errorf("clear cpu: %d chunks", r.Chunks)
	}
	if r := read[lookupResult](t, prompt("lookup", 1, chunks)...); r.Tiers["cpu"].Chunks != 0 || r.Tiers["disk"].Chunks != chunks {
		t.Errorf("after clear cpu: %+v", r)
	}
	damagePayload(t, disk, payload[2*adminChunk:][:adminChunk])
	code, out, _ := kvstored(t, "", "scrub", "--json")
	var s admin.Scrubbed
	if err := json.Unmarshal([]byte(out), &s); err != nil || code != exitFailure || s.Wrong != 1 || s.Chunks != chunks {
		t.Errorf("scrub: exit code %d, %s, %v", code, out, err)
	}
	if r := read[lookupResult](t, prompt("lookup", 1, chunks)...); r.MatchedChunks != 2 {
		t.Errorf("with a hole: %+v", r)
	}
	if got := must(t, "", prompt("get", 1, chunks)...); got != payload[:2*adminChunk] {
		t.Errorf("with a hole: %d bytes", len(got))
	}
	if r := read[putSum](t, append(prompt("put", 1, chunks), write(t, payload))...); r.Stored != 1 || r.There != 3 || r.Different != 0 {
		t.Errorf("put into the hole: %+v", r)
	}
	if got := must(t, "", prompt("get", 1, chunks)...); got != payload {
		t.Errorf("healed: %d bytes", len(got))
	}
	must(t, "", "flush")
	if s := read[admin.Scrubbed](t, "scrub"); s.Wrong != 0 || s.Chunks != chunks {
		t.Errorf("scrub after that: %+v", s)
	}
	if r := read[admin.Chunks](t, "clear", "--yes"); r.Chunks != chunks {
		t.Errorf("clear: %d chunks", r.Chunks)
	}
	for at, st := range tiersNow(t) {
		if st.Entries != 0 {
			t.Errorf("%s has %d entries", at, st.Entries)
		}
	}
}

// damagePayload flips a byte of a payload where it lies on disk.
func damagePayload(t *testing.T, dir, payload string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "seg-*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range files {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		at := bytes.Index(b, []byte(payload))
		if at < 0 {
			continue
		}
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := f.WriteAt([]byte{payload[100] ^ 1}, int64(at+100)); err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Fatalf("the payload is in none of %d files", len(files))
}

// TestSpaceQuota: the spaces under a quota evict their own, in DRAM and on disk,
// and a prompt that is longer than the quota is told why it is cut.
func TestSpaceQuota(t *testing.T) {
	const chunk, quota = 16 << 20, 4 // the least quota there is
	d := startDaemonWith(t, func(c *config.Config) {
		// Half of the leases are a client's while the one before it is leaving.
		c.CPU.Capacity = 2 * config.Bytes(float64(quota*chunk)/c.Budget.Leases) * 5 / 4
		c.Spaces = []config.Space{{Match: "tenant-*", Quota: quota * chunk, PrefillDepth: config.DefaultPrefillDepth}}
	})
	t.Setenv("KVSTORED_SOCKET", d.socket)
	ours, theirs := string(noise(1, 3*chunk)), string(noise(2, 6*chunk))
	must(t, ours, prompt("put", 1, 3)...) // under no quota
	for n := range 2 {
		must(t, ours, prompt("put", n, 3, "--model", "tenant-a")...)
		must(t, "", "flush")
	}
	fails(t, exitFailure, "quota", prompt("put", 9, 6, "--model", "tenant-b", write(t, theirs))...)
	must(t, "", "flush")
	tiers := tiersNow(t)
	for at, st := range tiers {
		q := st.Quotas[0]
		if q.UsedBytes > quota*chunk || q.Evictions == 0 || q.Evictions != st.Evictions {
			t.Errorf("%s: %+v, %d evictions in all", at, q, st.Evictions)
		}
	}
	if q := tiers["cpu"].Quotas[0]; q.Refused == 0 {
		t.Errorf("nothing was refused: %+v", q)
	}
	if got := must(t, "", prompt("get", 1, 3)...); got != ours {
		t.Errorf("of the other space %d bytes are left", len(got))
	}
	if got := must(t, "", prompt("get", 9, 6, "--model", "tenant-b")...); got != theirs[:quota*chunk] {
		t.Errorf("of the long prompt %d bytes are there", len(got))
	}
}
