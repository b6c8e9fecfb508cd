package commands_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// pasted is a shell in a folder, into which examples are pasted.
type pasted struct {
	*testing.T
	dir   string
	env   []string
	by    map[string][]string // the examples of each command
	tried map[string]bool
}

// examplesIn are the examples of the commands that wait, in a folder with the files that
// they name.
func examplesIn(t *testing.T) *pasted {
	dir, err := os.MkdirTemp("", "kvstored-e2e-") // t.TempDir can be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	p := &pasted{T: t, dir: dir, by: make(map[string][]string), tried: make(map[string]bool)}
	p.env = append(commandIn(t, dir), "KVSTORED_SOCKET="+filepath.Join(dir, "s"))
	text := fmt.Sprintf("listen: {socket: %s/s}\nadmin: {listen: ''}\ncpu: {capacity: 16MiB, keep: true}\ndisk: {capacity: 0}\nevents: {enabled: true}\n", dir)
	if err := os.WriteFile(filepath.Join(dir, "kvstored.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, e := range allExamples(t) {
		if slices.Contains(waiting, e.command) {
			p.by[e.command] = append(p.by[e.command], e.line)
		}
	}
	return p
}

// line is example i of a command as it is run, or one that is empty.
func (p *pasted) line(command string, i int) string {
	p.Helper()
	if i >= len(p.by[command]) {
		p.Fatalf("%s has no example %d", command, i)
	}
	line := p.by[command][i]
	p.tried[line] = true
	line = strings.TrimSuffix(line, " &") // it is waited for
	return strings.ReplaceAll(line, "=1GiB", "=16MiB")
}

// shell is what pastes a line, with variables besides.
func (p *pasted) shell(line string, vars ...string) *exec.Cmd {
	cmd := exec.CommandContext(p.Context(), "sh", "-c", "exec env "+line) // which takes settings before the command
	cmd.Dir, cmd.Env, cmd.WaitDelay = p.dir, append(slices.Clone(p.env), vars...), 10*time.Second
	return cmd
}

// start runs a line that waits. Its result ends the line, if it is told to, and checks that
// it ends well.
func (p *pasted) start(line string, vars ...string) (end func(stop bool)) {
	p.Helper()
	cmd, said := p.shell(line, vars...), new(bytes.Buffer)
	cmd.Stdout, cmd.Stderr = said, said
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		p.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	p.Cleanup(func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
	return func(stop bool) {
		p.Helper()
		if stop {
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM)
		}
		select {
		case err := <-ended:
			if err != nil {
				p.Errorf("%s: %v\n%s", line, err, said)
			}
		case <-time.After(time.Minute):
			p.Fatalf("%s does not end", line)
		}
	}
}

// until repeats a line until its output has a text.
func (p *pasted) until(line, text string) {
	p.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		out, err := p.shell(line).CombinedOutput()
		if strings.Contains(string(out), text) {
			return
		}
		if time.Now().After(end) {
			p.Fatalf("%s: %v\n%s", line, err, out)
		}
	}
}

// TestExamplesThatWait: so do the examples of commands that go on until they are stopped: a
// daemon and its keeper, and the next daemon.
func TestExamplesThatWait(t *testing.T) {
	p := examplesIn(t)
	endKeeper := p.start(p.line("serve", 2))
	p.until("ls", "s.keep")
	endFirst := p.start(p.line("serve", 0))
	p.until("kvstored stats", "DRAM")

	endFirst(true)
	endSecond := p.start(p.line("serve", 0))
	p.until("kvstored stats", "DRAM")
	endSecond(true)
	endKeeper(true)
	for i := range 2 {
		end := p.start(p.line("serve", i), "KVSTORED_LISTEN__SOCKET="+filepath.Join(p.dir, "s"), "KVSTORED_ADMIN__LISTEN=")
		p.until("kvstored stats", "DRAM")
		end(true)
	}
	for _, lines := range p.by {
		for _, line := range lines {
			if !p.tried[line] {
				t.Errorf("the example %q is not tried", line)
			}
		}
	}
}
