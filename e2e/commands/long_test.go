package commands_test

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/e2e/daemon"
)

// TestPromptLongerThanDRAM: a prompt of 6 times DRAM is put, and got byte by byte, through
// one client, also after a restart. No chunk is put twice, other bytes at its very end are
// told from it, and no command has the prompt in its heap.
func TestPromptLongerThanDRAM(t *testing.T) {
	const dram, chunks = 16 << 20, 384
	d := start(t, func(c *config.Config) { c.CPU.Capacity = dram })
	kv := noise(7, 6*dram)
	file, out := filepath.Join(t.TempDir(), "kv"), filepath.Join(t.TempDir(), "out")
	if err := os.WriteFile(file, kv, 0o600); err != nil {
		t.Fatal(err)
	}
	if said := within(t, 8, prompt("put", 1, chunks, file)...); !strings.Contains(said, "stored 384 of 384 chunks (96 MiB)") {
		t.Errorf("put: %s", said)
	}
	read := func() {
		t.Helper()
		within(t, dram>>20+8, prompt("get", 1, chunks, "--output", out)...)
		if got, err := os.ReadFile(out); err != nil || !bytes.Equal(got, kv) {
			t.Fatalf("%d bytes came back of %d, or others: %v", len(got), len(kv), err)
		}
	}
	read()
	daemon.Must(t, "", "flush")
	d.Stop()
	d.Start()
	read()
	if said := within(t, dram>>20+8, prompt("put", 1, chunks, file)...); !strings.Contains(said, "384 there already") {
		t.Errorf("put again: %s", said)
	}
	kv[len(kv)-1] ^= 1
	if err := os.WriteFile(file, kv, 0o600); err != nil {
		t.Fatal(err)
	}
	fails(t, daemon.ExitFailure, "other bytes were stored before for 1 chunk", prompt("put", 1, chunks, file)...)
}

// collected is what the heap was before and after a collection, in MB.
var collected = regexp.MustCompile(`(?m)^gc \d+ .* (\d+)->(\d+)->\d+ MB`)

// within runs a command whose heap may have so many MB.
func within(t *testing.T, limit int, args ...string) string {
	t.Helper()
	t.Setenv("GODEBUG", "gctrace=1")
	code, out, errs := daemon.Run(t, "", args...)
	t.Setenv("GODEBUG", "")
	if code != daemon.ExitOK {
		t.Fatalf("%v: exit code %d, %s", args, code, errs)
	}
	collections := collected.FindAllStringSubmatch(errs, -1)
	if len(collections) == 0 && args[0] == "get" { // put allocates next to nothing
		t.Errorf("no collection in %q", errs)
	}
	for _, m := range collections {
		if mb, err := strconv.Atoi(m[2]); err != nil || mb > limit {
			t.Errorf("the heap of %s has %s MB, want at most %d", args[0], m[2], limit)
		}
	}
	return out
}

// TestGetTakesAPieceAtATime: where one client may lease more than a piece has, the copy sets
// the size of a piece.
func TestGetTakesAPieceAtATime(t *testing.T) {
	const chunks, each, piece = 160, 1 << 20, 64 << 20
	d := start(t, func(c *config.Config) { c.CPU.Capacity, c.Disk.Capacity = 512<<20, 0 })
	file, out := filepath.Join(t.TempDir(), "kv"), filepath.Join(t.TempDir(), "out")
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, at := range []int64{0, 63 * each, 64 * each, 128 * each, chunks*each - 1} {
		if _, err := f.WriteAt([]byte{7}, at); err != nil {
			t.Fatal(err)
		}
	}
	daemon.Must(t, "", prompt("put", 1, chunks, file)...)
	daemon.Must(t, "", prompt("get", 1, chunks, "--output", out)...)
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(out); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes came back of %d, or others: %v", len(got), len(want), err)
	}
	tokens := make([]uint32, chunks)
	for i := range tokens {
		tokens[i] = 1
	}
	pieces := 0
	for p, err := range d.Dial(client.Options{Space: &handsOn}).Pieces(t.Context(), client.Tokens(tokens), client.PrefetchOptions{Policy: client.WaitComplete}) {
		if err != nil {
			t.Fatal(err)
		}
		if pieces++; len(p.Chunks)*each > piece {
			t.Errorf("a piece of %d chunks", len(p.Chunks))
		}
	}
	if pieces < chunks*each/piece {
		t.Errorf("%d pieces", pieces)
	}
}
