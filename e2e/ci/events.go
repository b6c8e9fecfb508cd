package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// endDelay is how long the go command and the programs that it has started have to end.
const endDelay = 10 * time.Second

// event is a line of go test -json.
type event struct {
	Action     string
	Package    string
	ImportPath string // of what a build says
	Test       string
	Elapsed    float64
	Output     string
}

// testKey names a test at the top level.
type testKey struct{ pkg, name string }

func (k testKey) String() string { return k.pkg + "." + k.name }

// results is what one go test has said.
type results struct {
	failed  map[testKey]bool
	begun   map[testKey]bool    // and not ended: their program has ended before
	skipped []string            // tests and subtests, and why
	last    map[string]string   // message of a test or subtest
	said    map[testKey]string  // output of a test and its subtests
	elapsed map[testKey]float64 // seconds
	broken  map[string]bool     // packages that failed, a test of theirs or not
	ended   int                 // packages
}

// goTest runs go test -json with args in dir and prints what go test would: the
// packages' lines, and what failed tests say. Its error is of a go command that could
// not be run at all.
func goTest(ctx context.Context, out io.Writer, dir string, env []string, args ...string) (*results, error) {
	cmd := exec.CommandContext(ctx, "go", append([]string{"test", "-json"}, args...)...)
	cmd.Dir, cmd.Env, cmd.Stderr = dir, env, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // with the programs that it starts
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = endDelay
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	r := collect(stdout, out)
	err = errors.Join(cmd.Wait(), r.noteSkipped(os.Getenv(skippedVar)))
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil && len(r.broken) == 0 {
		return nil, fmt.Errorf("go test: %w", err)
	}
	return r, nil
}

// collect reads events to their end and prints as goTest says.
func collect(in io.Reader, out io.Writer) *results {
	r := &results{failed: map[testKey]bool{}, begun: map[testKey]bool{}, last: map[string]string{}, said: map[testKey]string{}, elapsed: map[testKey]float64{}, broken: map[string]bool{}}
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadString('\n')
		if line != "" {
			var e event
			if json.Unmarshal([]byte(line), &e) == nil {
				r.add(e, out)
			} else {
				fmt.Fprint(out, line) // no event: the go command's own words
			}
		}
		if err != nil {
			return r
		}
	}
}

// noteSkipped adds what was skipped to a file, unless its name is empty.
func (r *results) noteSkipped(file string) error {
	if file == "" || len(r.skipped) == 0 {
		return nil
	}
	f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(strings.Join(r.skipped, "\n") + "\n")
	return errors.Join(err, f.Close())
}

func (r *results) add(e event, out io.Writer) {
	top, _, sub := strings.Cut(e.Test, "/")
	k := testKey{e.Package, top}
	switch {
	case e.Action == "build-output":
		fmt.Fprint(out, e.Output)
	case e.Action == "output" && e.Test == "":
		fmt.Fprint(out, e.Output)
	case e.Action == "output":
		r.said[k] += e.Output
		if m := message.FindStringSubmatch(e.Output); m != nil {
			r.last[e.Package+"."+e.Test] = m[2]
		}
	case e.Test == "" && (e.Action == "pass" || e.Action == "skip" || e.Action == "fail"):
		r.ended++
		if e.Action == "fail" {
			r.broken[e.Package] = true
			r.tellUnended(e.Package, out)
		}
	case e.Action == "run" && !sub:
		r.begun[k] = true
	case e.Action == "skip":
		name := e.Package + "." + e.Test
		r.skipped = append(r.skipped, name+": "+r.last[name])
		if !sub {
			delete(r.begun, k)
		}
	case sub:
	case e.Action == "fail":
		r.failed[k] = true
		delete(r.begun, k)
		fmt.Fprint(out, r.said[k])
	case e.Action == "pass":
		r.elapsed[k] = e.Elapsed
		delete(r.begun, k)
		delete(r.said, k)
	}
}

// tellUnended prints what the tests of a package have said that had begun when its program
// ended: a panic, a signal.
func (r *results) tellUnended(pkg string, out io.Writer) {
	for k := range r.begun {
		if k.pkg == pkg {
			fmt.Fprintf(out, "%s has not ended:\n%s", k, r.said[k])
		}
	}
}
