package commands_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/e2e/daemon"
	"github.com/kvstored/kvstored/key"
)

// smallTrace has 4 prompts: the second goes on from the first, the third is the first
// again, the fourth shares one block.
const smallTrace = `{"timestamp": 0, "input_length": 1100, "output_length": 5, "hash_ids": [0, 1, 2]}
{"timestamp": 9, "input_length": 2000, "output_length": 5, "hash_ids": [0, 1, 3, 4]}
{"timestamp": 9, "input_length": 1100, "output_length": 5, "hash_ids": [0, 1, 2]}
{"timestamp": 9, "input_length": 600, "output_length": 5, "hash_ids": [0, 9]}
`

// waiting are the commands that go on until they are stopped: TestExamplesThatWait runs
// their examples.
var waiting = []string{"serve"}

// exampleOrder is the commands whose examples come first, and those that come last as they
// take away what others find, or write over the file that others read.
var exampleOrder = []string{"put", "", "check", "claims", "forget"}

// example is a line of a command's help.
type example struct{ command, line string }

var (
	subcommand = regexp.MustCompile(`(?m)^  ([a-z]+) +\S`)
	helpOf     = regexp.MustCompile(`(?m)^(Examples|Available Commands|Run it|Look at it|One prompt|Operate it):\n((?:  .*\n)+)`)
)

// allExamples are the examples of a command and of those below it.
func allExamples(t *testing.T, command ...string) (all []example) {
	t.Helper()
	for _, section := range helpOf.FindAllStringSubmatch(daemon.Must(t, "", append(command, "--help")...), -1) {
		if section[1] == "Examples" {
			for line := range strings.Lines(section[2]) {
				all = append(all, example{command[len(command)-1], strings.TrimSpace(line)})
			}
			continue
		}
		for _, m := range subcommand.FindAllStringSubmatch(section[2], -1) {
			if m[1] != "help" && m[1] != "completion" {
				all = append(all, allExamples(t, append(slices.Clone(command), m[1])...)...)
			}
		}
	}
	return all
}

// inOrder lists the examples of commands that end in the order in which they are tried.
func inOrder(all []example) (lines []string) {
	by := make(map[string][]string)
	for _, e := range all {
		name := e.command
		if !slices.Contains(exampleOrder, name) {
			name = ""
		}
		if !slices.Contains(waiting, e.command) {
			by[name] = append(by[name], e.line)
		}
	}
	for _, name := range exampleOrder {
		lines = append(lines, by[name]...)
	}
	return lines
}

// TestExamples: the examples of each command's help do what they are an example of when they
// are pasted into a shell, with the files that they name and an engine at work.
func TestExamples(t *testing.T) {
	d, dir := start(t, func(cfg *config.Config) { cfg.Events.Enabled = true }), t.TempDir()
	env := append(commandIn(t, dir), "KVSTORED_SOCKET="+d.Socket)
	for name, text := range map[string]string{
		"kv.bin": strings.Repeat("kv", 500), "conversation_trace.jsonl": smallTrace,
		"kvstored.yaml": "listen: {socket: " + dir + "/s}\nadmin: {listen: ''}\ncpu: {capacity: 16MiB}\ndisk: {capacity: 0}\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	lines := inOrder(allExamples(t))
	for i, line := range lines {
		if i == 1 {
			engineAtWork(t, d)
		}
		line = strings.ReplaceAll(line, "head -100", "head -1")
		try(t, line, dir, env)
	}
	if len(lines) < 20 {
		t.Errorf("only %d examples were tried", len(lines))
	}
}

// try pastes a line. One that goes on until it is interrupted is, once it has said something.
func try(t *testing.T, line, dir string, env []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	endless := strings.Contains(line, "--watch") || strings.Contains(line, "kvstored events")
	pasted := "exec " + line
	if strings.ContainsAny(line, "|>") {
		pasted = line
	}
	cmd := exec.CommandContext(ctx, "sh", "-c", pasted)
	out := &heard{first: make(chan struct{})}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.Dir, cmd.Env, cmd.WaitDelay, cmd.Stdout, cmd.Stderr = dir, env, 5*time.Second, out, out
	err := cmd.Start()
	for n := 0; err == nil && endless && ctx.Err() == nil; n++ {
		select {
		case <-out.first:
			cancel()
		case <-time.After(100 * time.Millisecond): // for the next event
			daemon.Must(t, "event", "put", "--text", fmt.Sprint("event ", n))
		}
	}
	if err == nil {
		err = cmd.Wait()
	}
	if err != nil && !endless || endless && len(out.String()) == 0 {
		t.Errorf("%s: %v\n%s", line, err, out)
	}
	if text := out.String(); strings.HasPrefix(text, "no") || strings.Contains(text, "nothing is stored") {
		t.Errorf("%s finds nothing:\n%s", line, out)
	}
}

// heard is what a command says, and whether it has.
type heard struct {
	mu    sync.Mutex
	text  []byte
	first chan struct{} // closed by the first words
}

func (h *heard) Write(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.text) == 0 && len(p) > 0 {
		close(h.first)
	}
	h.text = append(h.text, p...)
	return len(p), nil
}

func (h *heard) String() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return string(h.text)
}

// commandIn puts kvstored into a folder, and returns an environment in which a shell finds
// it there.
func commandIn(t *testing.T, dir string) []string {
	t.Helper()
	for name, program := range map[string]string{"kvstored": daemon.Program(t), "kvstored-lab": daemon.Lab(t)} {
		if err := os.Symlink(program, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	env := slices.DeleteFunc(os.Environ(), func(kv string) bool { return strings.HasPrefix(kv, "KVSTORED_") })
	return append(env, "PATH="+dir+string(os.PathListSeparator)+os.Getenv("PATH"))
}

// engineAtWork has an engine ask for the prompt of the examples as they name it, and pin it.
func engineAtWork(t *testing.T, d *daemon.Daemon) {
	t.Helper()
	space := key.Space{Model: "hands-on", DType: "bytes", World: 1, ChunkTokens: 256, Method: key.SHA256}
	c := d.Dial(client.Options{Space: &space})
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
}
