package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/internal/admin"
	"github.com/kvstored/kvstored/key"
)

// waiting are the commands that go on until they are stopped: TestExamplesThatWait runs
// their examples.
var waiting = []string{"keep", "serve", "route", "top"}

// exampleOrder is the commands whose examples come first, and those that come last as they
// take away what others find, or write over the file that others read.
var exampleOrder = []string{"put", "", "check", "revoke", "purge", "clear"}

// examples lists the lines of all examples in the order in which they are tried.
func examples() (lines []string) {
	by := make(map[string][]string)
	eachCommand(rootCommand(), func(cmd *cobra.Command) {
		for line := range strings.Lines(cmd.Example) {
			name := cmd.Name()
			if !slices.Contains(exampleOrder, name) {
				name = ""
			}
			if !slices.Contains(waiting, cmd.Name()) {
				by[name] = append(by[name], strings.TrimSpace(line))
			}
		}
	})
	for _, name := range exampleOrder {
		lines = append(lines, by[name]...)
	}
	return lines
}

// TestExamples: the examples of each command's help do what they are an example of when they
// are pasted into a shell, with the files that they name and an engine at work.
func TestExamples(t *testing.T) {
	d, dir := startDaemonWith(t, func(cfg *config.Config) { cfg.Events.Enabled = true }).socket, t.TempDir()
	env := commandIn(t, dir)
	for name, text := range map[string]string{
		"kv.bin": strings.Repeat("kv", 500), "conversation_trace.jsonl": smallTrace,
		"kvstored.yaml": "listen: {socket: " + dir + "/s}\nadmin: {listen: ''}\ncpu: {capacity: 16MiB}\ndisk: {capacity: 0}\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("KVSTORED_SOCKET", d)
	env = append(env, "KVSTORED_SOCKET="+d)
	var connection uint64
	lines := examples()
	for i, line := range lines {
		if i == 1 {
			connection = engineAtWork(t, d)
		}
		line = strings.ReplaceAll(line, "--connection 17", "--connection "+strconv.FormatUint(connection, 10))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		if strings.Contains(line, "--watch") || strings.Contains(line, "kvstored events") {
			ctx, cancel = context.WithTimeout(ctx, 2*time.Second) // it goes on until it is interrupted
		}
		cmd := exec.CommandContext(ctx, "sh", "-c", "exec "+line)
		if strings.ContainsAny(line, "|>") {
			cmd = exec.CommandContext(ctx, "sh", "-c", line)
		}
		cmd.Dir, cmd.Env, cmd.WaitDelay = dir, env, 5*time.Second
		out, err := cmd.CombinedOutput()
		endless := ctx.Err() != nil && t.Context().Err() == nil && strings.Contains(line, "kvstored ")
		cancel()
		if err != nil && !endless {
			t.Errorf("%s: %v\n%s", line, err, out)
		}
		if text := string(out); strings.HasPrefix(text, "no") || strings.Contains(text, "nothing is stored") {
			t.Errorf("%s finds nothing:\n%s", line, out)
		}
	}
	if len(lines) < 20 {
		t.Errorf("only %d examples were tried", len(lines))
	}
}

// commandIn puts kvstored into a folder, and returns an environment in which a shell finds
// it there.
func commandIn(t *testing.T, dir string) []string {
	t.Helper()
	program, err := os.Executable()
	if err == nil {
		err = os.Symlink(program, filepath.Join(dir, "kvstored"))
	}
	if err != nil {
		t.Fatal(err)
	}
	return append(withoutOurs(os.Environ()), "PATH="+dir+string(os.PathListSeparator)+os.Getenv("PATH"))
}

// engineAtWork has an engine ask for the prompt of the examples as they name it, and pin it.
// It returns its connection.
func engineAtWork(t *testing.T, socket string) uint64 {
	space := key.Space{Model: "hands-on", DType: "bytes", World: 1, ChunkTokens: 256, Method: key.SHA256}
	c, err := client.Dial(t.Context(), socket, client.Options{Space: &space})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	var tokens []uint32
	for _, b := range []byte("You are a helpful assistant.") {
		tokens = append(tokens, uint32(b))
	}
	p := client.Tokens(tokens)
	p.SaveUnfull = true
	if _, err := c.Prefetch(t.Context(), p, client.PrefetchOptions{LookupID: "cmpl-7f3a"}); err != nil {
		t.Fatal(err)
	}
	j, err := c.Prefetch(t.Context(), client.Tokens(make([]uint32, 256)), client.PrefetchOptions{LookupID: "cmpl-7f3b"}) // misses it all
	if err == nil {
		err = j.Release(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	if n, err := c.Pin(t.Context(), p, "system-prompt", 0); err != nil || n.Chunks == 0 {
		t.Fatalf("pinned %+v, %v", n, err)
	}
	return read[admin.Pins](t, "pins", "--json").Pins[0].Connection
}
