package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kvstored/kvstored/config"
)

// TestPromptLongerThanDRAM: a prompt of 6 times DRAM is put, and got byte by
// byte, through one client, also after a restart. No chunk is put twice.
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
	if said := within(t, 4<<20, prompt("put", 1, chunks, file)...); !strings.Contains(said, "stored 384 of 384 chunks (96 MiB)") {
		t.Errorf("put: %s", said)
	}
	read := func() {
		t.Helper()
		within(t, dram+4<<20, prompt("get", 1, chunks, "--output", out)...)
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
	if said := within(t, dram+4<<20, prompt("put", 1, chunks, file)...); !strings.Contains(said, "384 there already") {
		t.Errorf("put again: %s", said)
	}
}

// within runs a command that may allocate so many bytes in all.
func within(t *testing.T, limit uint64, args ...string) string {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	said := must(t, "", args...)
	runtime.ReadMemStats(&after)
	if used := after.TotalAlloc - before.TotalAlloc; used > limit {
		t.Errorf("%s has allocated %d bytes in all, want at most %d", args[0], used, limit)
	}
	return said
}

// Where one client may lease more than a piece has, the copy sets the size of a piece.
func TestGetTakesAPieceAtATime(t *testing.T) {
	const chunks, each = 160, 1 << 20
	t.Setenv("KVSTORED_SOCKET", startDaemonWith(t, func(c *config.Config) { c.CPU.Capacity = 512 << 20 }).socket)
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
	within(t, 4<<20, prompt("put", 1, chunks, file)...)
	within(t, 72<<20, prompt("get", 1, chunks, "--output", out)...)
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(out); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes came back of %d, or others: %v", len(got), len(want), err)
	}
}

// Payloads come from files and from standard input, which may be a file that
// was read in part, or a pipe.
func TestPutReadsWhatItIsGiven(t *testing.T) {
	t.Setenv("KVSTORED_SOCKET", startDaemon(t))
	file := filepath.Join(t.TempDir(), "kv")
	kv := noise(8, 3*adminChunk)
	if err := os.WriteFile(file, kv, 0o600); err != nil {
		t.Fatal(err)
	}
	open := func() *os.File {
		f, err := os.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	behind, pipe := open(), filepath.Join(t.TempDir(), "pipe")
	if _, err := behind.Seek(adminChunk, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	go func() {
		if err := os.WriteFile(pipe, kv, 0); err != nil {
			t.Error(err)
		}
	}()
	for i, tt := range []struct {
		stdin io.Reader
		args  []string
		want  []byte
	}{
		{strings.NewReader(""), []string{file}, kv},
		{open(), nil, kv},
		{behind, []string{"-"}, kv[adminChunk:]},
		{bytes.NewReader(kv), nil, kv},
		{strings.NewReader(""), []string{pipe}, kv},
	} {
		var out, errs bytes.Buffer
		if code := run(prompt("put", 10+i, 2, tt.args...), tt.stdin, &out, &errs); code != exitOK {
			t.Fatalf("%d: exit code %d, %s", i, code, errs.String())
		}
		if got := must(t, "", prompt("get", 10+i, 2)...); got != string(tt.want) {
			t.Errorf("%d: %d bytes came back, want %d", i, len(got), len(tt.want))
		}
	}
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	fails(t, exitFailure, "a payload has at least one byte", prompt("put", 1, 2, empty)...)
	fails(t, exitFailure, "no such file", prompt("put", 1, 2, file+"x")...)
	fails(t, exitFailure, "is a folder", prompt("put", 1, 2, t.TempDir())...)
	t.Setenv("TMPDIR", file)
	code, _, said := kvstored(t, "abc", prompt("put", 1, 2)...)
	if code != exitFailure || !strings.Contains(said, "set TMPDIR to a folder with room") {
		t.Errorf("without a folder for temporary files: exit code %d, %s", code, said)
	}
	code, _, said = kvstored(t, "1,2", "put", "--tokens-file", "-")
	if code != exitUsage || !strings.Contains(said, "standard input is the tokens already") {
		t.Errorf("tokens and payload from standard input: exit code %d, %s", code, said)
	}
}
