package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kvstored/kvstored/config"
)

// TestPromptLongerThanDRAM: a prompt of 6 times DRAM is put, and got byte by
// byte, through one client, also after a restart. What was put is not put again.
// Package tier has one of 20 times, and bench/long the times.
func TestPromptLongerThanDRAM(t *testing.T) {
	const dram, chunks = 16 << 20, 384
	d := startDaemonWith(t, func(c *config.Config) {
		c.CPU.Capacity, c.Disk.Capacity, c.Disk.SegmentSize = dram, 1<<30, 64<<20
	})
	t.Setenv("KVSTORED_SOCKET", d.socket)
	kv := noise(7, 6*dram)
	file, out := filepath.Join(t.TempDir(), "kv"), filepath.Join(t.TempDir(), "out")
	if err := os.WriteFile(file, kv, 0o600); err != nil {
		t.Fatal(err)
	}
	if said := must(t, "", prompt("put", 1, chunks, file)...); !strings.Contains(said, "stored 384 of 384 chunks (96 MiB)") {
		t.Errorf("put: %s", said)
	}
	read := func() {
		t.Helper()
		must(t, "", prompt("get", 1, chunks, "--output", out)...)
		if got, err := os.ReadFile(out); err != nil || !bytes.Equal(got, kv) {
			t.Fatalf("%d bytes came back of %d, or others: %v", len(got), len(kv), err)
		}
	}
	read()
	must(t, "", "flush")
	if err := d.stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := d.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	read()
	if said := must(t, "", prompt("put", 1, chunks, file)...); !strings.Contains(said, "384 there already") {
		t.Errorf("put again: %s", said)
	}
}
