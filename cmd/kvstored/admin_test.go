package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/kvstored/kvstored/client"
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

// TestAdministering: what an administrator sees and does of DRAM.
func TestAdministering(t *testing.T) {
	socket := serveHere(t).socket
	t.Run("claims", func(t *testing.T) { pinsAndRevoke(t, socket) })
	t.Run("policy set", func(t *testing.T) { policySet(t, socket) })
	t.Run("clear", clearDRAM)
}

// pinsAndRevoke: what keeps chunks from eviction can be seen and ended from outside.
func pinsAndRevoke(t *testing.T, socket string) {
	must(t, kv(1, 4), prompt("put", 1, 4)...)
	if out := must(t, "", "list", "claims"); out != "nothing is pinned\nnothing is retained\n" {
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

	p := read[admin.Claims](t, "list", "claims")
	if len(p.Pins) != 2 || p.Pins[0].Name != "a" || p.Pins[0].Chunks != 4 || p.Pins[0].Bytes != 4*adminChunk || p.Pins[0].ExpiresSeconds <= 0 ||
		len(p.Holders) != 1 || p.Holders[0].Name != "holder" || p.Holders[0].LeaseBytes != 4*adminChunk || p.Holders[0].PinBytes != 4*adminChunk {
		t.Errorf("pins %+v", p)
	}
	if out := must(t, "", "list", "claims"); !strings.Contains(out, "holder") || !strings.Contains(out, "256 KiB") {
		t.Errorf("pins:\n%s", out)
	}
	for _, tt := range []struct {
		args  []string
		freed uint64
	}{
		{[]string{"list", "claims", "--revoke", "a"}, 4}, {[]string{"list", "claims", "--revoke-all"}, 4},
		{[]string{"list", "leases", "--revoke", fmt.Sprint(p.Holders[0].Connection)}, 4}, // its lease
	} {
		if r := read[admin.Chunks](t, tt.args...); r.Chunks != tt.freed {
			t.Errorf("%v freed %d chunks, want %d", tt.args, r.Chunks, tt.freed)
		}
	}
	if err := job.Release(t.Context()); !strings.Contains(fmt.Sprint(err), "revoked") {
		t.Errorf("the holder's release: %v", err)
	}
	if out := must(t, "", "list", "claims"); out != "nothing is pinned\nnothing is retained\n" {
		t.Errorf("pins after that: %s", out)
	}
	fails(t, exitUsage, "do not go together", "list", "claims", "--revoke", "a", "--revoke-all")
	fails(t, exitFailure, `kvstored: claims: there is no connection 1000000;`, "list", "leases", "--revoke", "1000000")
	fails(t, exitFailure, `nothing is pinned as "a"`, "list", "claims", "--revoke", "a")
	must(t, "", "list", "claims", "--revoke-all")
}

// policySet: while a client is at work every policy takes DRAM over from the one before,
// and not an entry is lost.
func policySet(t *testing.T, socket string) {
	must(t, "", "forget", "--tier", "cpu", "--yes")
	const prompts, chunks = 4, 8
	for n := range prompts {
		must(t, kv(n, chunks), prompt("put", n, chunks)...)
	}
	ctx, stop := context.WithCancel(t.Context())
	working := make(chan error, 1)
	go func() { working <- work(ctx, socket, prompts, chunks) }() // ends with ctx
	for _, name := range append(policy.All(), "lru") {
		if r := read[admin.Policies](t, "policy", "set", "cpu", name); r.Tiers["cpu"] != name || !slices.Equal(r.Names, policy.All()) {
			t.Errorf("policy set cpu %s: %+v", name, r)
		}
		if st := tiersNow(t)["cpu"]; st.Entries != prompts*chunks || st.Evictions != 0 || st.Policy != name {
			t.Errorf("after policy set cpu %s: %d entries, %d evictions, %s", name, st.Entries, st.Evictions, st.Policy)
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
	fails(t, exitFailure, "there is no disk tier", "policy", "set", "disk", "lru")
	fails(t, exitUsage, "give cpu (DRAM) or disk", "policy", "set", "tape", "lru")
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

// clearDRAM: DRAM is emptied, and only by who says so.
func clearDRAM(t *testing.T) {
	must(t, "", "forget", "--tier", "cpu", "--yes")
	must(t, kv(1, 4), prompt("put", 1, 4)...)
	fails(t, exitUsage, "--yes", "forget", "--tier", "cpu")
	fails(t, exitUsage, "no tier", "forget", "--tier", "tape", "--yes")
	fails(t, exitFailure, "there is no remote tier", "forget", "--tier", "remote", "--yes")
	if r := read[admin.Chunks](t, "forget", "--tier", "cpu", "--yes"); r.Chunks != 4 {
		t.Errorf("clear: %d chunks", r.Chunks)
	}
	if r := read[lookupResult](t, prompt("lookup", 1, 4)...); r.MatchedChunks != 0 {
		t.Errorf("after clear: %+v", r)
	}
	for at, st := range tiersNow(t) {
		if st.Entries != 0 {
			t.Errorf("%s has %d entries", at, st.Entries)
		}
	}
}
