package commands_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/e2e/daemon"
	"github.com/kvstored/kvstored/key"
)

// chunkBytes is the payload of a chunk here: large enough for an extent.
const chunkBytes = 64 << 10

// handsOn is what prompt's flags say.
var handsOn = key.Space{Model: "hands-on", DType: "bytes", World: 1, ChunkTokens: 1, Method: key.SHA256}

// start runs a daemon to which commands without --socket go.
func start(t *testing.T, changes ...func(*config.Config)) *daemon.Daemon {
	t.Helper()
	d := daemon.Start(t, append([]func(*config.Config){small}, changes...)...)
	t.Setenv("KVSTORED_SOCKET", d.Socket)
	return d
}

// small is 32 MiB of DRAM, which is soon there.
func small(c *config.Config) { c.CPU.Capacity = 32 << 20 }

// prompt is a command with the flags for prompt number n of so many chunks, none of
// which another number has.
func prompt(command string, n, chunks int, more ...string) []string {
	tokens := strings.TrimSuffix(strings.Repeat(fmt.Sprintf("%d,", n), chunks), ",")
	return append([]string{command, "--chunk-tokens", "1", "--tokens", tokens}, more...)
}

// kv is the payload stored for prompt n.
func kv(n, chunks int) string { return string(noise(n, chunks*chunkBytes)) }

func noise(seed, n int) []byte {
	b := make([]byte, n)
	rand.NewChaCha8([32]byte{byte(seed)}).Read(b) // never fails
	return b
}

// fails checks what a command says that must not work.
func fails(t *testing.T, code int, says string, args ...string) {
	t.Helper()
	got, out, errs := daemon.Run(t, "", args...)
	if got != code || !strings.Contains(errs, says) {
		t.Errorf("%v: exit code %d, want %d; it says %q, want %q; and prints %q", args, got, code, errs, says, out)
	}
}

// write writes a file that goes with the test.
func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// matched is what of a lookup tests look at.
type matched struct {
	Chunks int `json:"matched_chunks"`
	Tiers  map[string]struct {
		Chunks int `json:"chunks"`
	} `json:"tiers"`
}

// damage flips bits where payloads lie on disk: those at some distances from the begin of
// each. A payload that is not there fails the test.
func damage(t *testing.T, dir string, distances []int, payloads ...string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "seg-*"))
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, path := range files {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		for _, p := range payloads {
			at := bytes.Index(b, []byte(p))
			if at < 0 {
				continue
			}
			found++
			for _, d := range distances {
				if _, err := f.WriteAt([]byte{b[at+d] ^ 1}, int64(at+d)); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	if found != len(payloads) {
		t.Fatalf("%d of %d payloads are in %d files", found, len(payloads), len(files))
	}
}

// Where damage hits a payload, and both copies of its header.
var (
	inPayload = []int{100}
	inHeaders = []int{-4096 + 16, -2048 + 16}
)
