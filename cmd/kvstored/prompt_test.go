package main

import (
	"bytes"
	"context"
	"encoding/hex"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kvstored/kvstored/client"
)

// TestPrompts: what goes in for a prompt comes out, and where it does not the commands say so.
func TestPrompts(t *testing.T) {
	socket := serveHere(t).socket // with 16 MiB, of which one client may lease 6.4 at a time
	t.Run("other bytes count in stats", func(t *testing.T) { statsDiffers(t, socket) })
	t.Run("the space is shown", spaceIsShown)
	t.Run("long", longPrompt)
	t.Run("put reads what it is given", putReadsWhatItIsGiven)
}

// A prompt larger than what one client may hold goes in and comes out in parts, and other
// bytes at its very end are told from it.
func longPrompt(t *testing.T) {
	const chunks = 176 // of 64 KiB: 11 MiB
	payload := kv(1, chunks)
	must(t, payload, prompt("put", 1, chunks)...)
	if got := must(t, "", prompt("get", 1, chunks)...); got != payload {
		t.Errorf("%d of %d bytes are back, or others", len(got), len(payload))
	}
	other := payload[:len(payload)-1] + string(payload[len(payload)-1]^1)
	code, out, errs := kvstored(t, other, prompt("put", 1, chunks)...)
	if code != exitFailure || !strings.Contains(errs, "other bytes were stored before for 1 chunk") {
		t.Errorf("put of another last byte: exit code %d, %s%s", code, out, errs)
	}
}

// lookup shows the id of the space that forget --space takes.
func spaceIsShown(t *testing.T) {
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
	if got := read[forgotten](t, "forget", "--space", space, "--dry-run"); got.Chunks != 2 || !got.DryRun {
		t.Errorf("it would forget %+v", got)
	}
	must(t, "", "forget", "--space", space, "--yes")
	fails(t, exitFailure, "nothing is stored", prompt("get", 1, 2)...)
	fails(t, exitUsage, "give one of --tokens, ", "forget", "--yes")
	fails(t, exitUsage, "give one of --tokens, ", "forget", "--model", "hands-on", "--yes")
	fails(t, exitUsage, "do not go together", "forget", "--space", space, "--model", "hands-on", "--yes")
	fails(t, exitUsage, "do not go together", "forget", "--space", space, "--tier", "cpu", "--yes")
	fails(t, exitFailure, "is no space", "forget", "--space", "x", "--yes")
}

// check says what a configuration comes to.
func TestCheckSummary(t *testing.T) {
	dir := t.TempDir()
	there := write(t, "listen: {socket: "+filepath.Join(dir, "s")+"}\nadmin: {listen: \"\"}\ncpu: {capacity: 1GiB}\ndisk: {paths: ["+dir+", "+dir+"/new], capacity: 1GiB, min_free: 1MiB}\nwrite: {mode: through}\n")
	out := must(t, "", "check", there)
	unwrapped := regexp.MustCompile(`\n# {4,}`).ReplaceAllString(out, " ") // where a line ends depends on the length of dir
	for _, want := range []string{"# DRAM     1.0 GiB", "leases and fills 410 MiB", "unwritten 205 MiB", "819 MiB in all", dir + ": ", "; made at start", "# remote   none"} {
		if !strings.Contains(out, want) && !strings.Contains(unwrapped, want) {
			t.Errorf("check does not say %q:\n%s", want, out)
		}
	}
	measured := regexp.MustCompile(`\d\S* [KMGT]iB free`) // differs from run to run
	if again := must(t, "", "check", write(t, out)); measured.ReplaceAllString(again, "") != measured.ReplaceAllString(out, "") {
		t.Errorf("what check prints is not what it reads:\n%s", again)
	}
}

// Chunks that a put was refused count in stats.
func statsDiffers(t *testing.T, socket string) {
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

// Payloads come from files and from standard input, which may be a file that
// was read in part, or a pipe.
func putReadsWhatItIsGiven(t *testing.T) {
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
