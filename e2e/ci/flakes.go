package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/kvstored/kvstored/e2e/daemon"
)

// mostProgram is how long one run of a package's tests may take beside load.
const mostProgram = 10 * time.Minute

// flakes runs the root's tests again and again beside two busy loops. It goes on where the
// last call was stopped, as long as the folder of its state is there.
func flakes(ctx context.Context, args []string) error {
	set := flag.NewFlagSet("flakes", flag.ContinueOnError)
	runs := set.Int("runs", 20, "of each package")
	span := set.Duration("for", 90*time.Minute, "that all may take; what is left is for the next call")
	state := set.String("state", filepath.Join(os.TempDir(), "kvstored-flakes"), "folder of the programs and of what has been run; another one begins anew")
	if err := set.Parse(args); errors.Is(err, flag.ErrHelp) {
		return nil
	} else if err != nil {
		return errors.New("see flakes -h")
	}
	if *runs < 1 {
		return fmt.Errorf("-runs %d: want one at least", *runs)
	}
	patterns := set.Args()
	if len(patterns) == 0 {
		patterns = []string{"./..."}
	}
	packages, err := compile(ctx, *state, patterns)
	if err != nil {
		return err
	}
	done := filepath.Join(*state, "done")
	ran, err := earlier(done)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, *span)
	defer cancel()
	stop := load()
	defer stop()
	failed := 0
	for n := range *runs {
		before := 0
		for _, p := range packages {
			key := fmt.Sprintf("%d %s %s", n, p.dir, p.sum)
			if how := ran[key]; how != "" {
				before++
				if how != passed {
					failed++
				}
				continue
			}
			how := passed
			if err := p.run(ctx, *state, n); ctx.Err() != nil {
				return fmt.Errorf("time is up in run %d of %d at %s, with %d failures; call it again to go on", n+1, *runs, p.dir, failed)
			} else if err != nil {
				failed++
				how = "FAIL"
				fmt.Printf("FAIL run %d: %s: %v\n", n+1, p.dir, err)
			}
			if err := appendTo(done, key+" "+how+"\n"); err != nil {
				return err
			}
		}
		fmt.Printf("run %d of %d: %d failures so far; %d packages, %d of them run by an earlier call\n", n+1, *runs, failed, len(packages), before)
	}
	if failed > 0 {
		return fmt.Errorf("%d failures; their output is in %s", failed, *state)
	}
	return nil
}

const passed = "ok"

// earlier are the runs of earlier calls, by number, package and program, and how they
// ended.
func earlier(file string) (map[string]string, error) {
	text, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	ran := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if at := strings.LastIndex(line, " "); at > 0 {
			ran[line[:at]] = strings.TrimSpace(line[at:])
		}
	}
	return ran, nil
}

// testProgram is the compiled tests of a package.
type testProgram struct{ dir, path, sum string }

// compile builds the tests of the packages that have some.
func compile(ctx context.Context, state string, patterns []string) (programs []testProgram, err error) {
	if err := os.MkdirAll(state, 0o755); err != nil {
		return nil, err
	}
	list := exec.CommandContext(ctx, "go", append([]string{"list", "-f", "{{if or .TestGoFiles .XTestGoFiles}}{{.Dir}}{{end}}"}, patterns...)...)
	list.Dir, list.Stderr = daemon.Root(), os.Stderr
	out, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	for _, dir := range strings.Fields(string(out)) {
		rel, err := filepath.Rel(daemon.Root(), dir)
		if err != nil {
			return nil, err
		}
		p := testProgram{dir: rel, path: filepath.Join(state, strings.ReplaceAll(rel, "/", "-")+".test")}
		build := exec.CommandContext(ctx, "go", "test", "-c", "-o", p.path, "./"+rel)
		build.Dir = daemon.Root()
		if out, err := build.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("build the tests of %s: %w\n%s", rel, err, out)
		}
		program, err := os.ReadFile(p.path)
		if err != nil {
			return nil, err
		}
		p.sum = fmt.Sprintf("%x", sha256.Sum256(program))[:16]
		programs = append(programs, p)
	}
	return slices.Clip(programs), nil
}

// run runs the tests of a package once. What they say is kept where they fail.
func (p testProgram) run(ctx context.Context, state string, n int) error {
	cmd := exec.CommandContext(ctx, p.path, "-test.shuffle=on", "-test.timeout="+mostProgram.String())
	cmd.Dir = filepath.Join(daemon.Root(), p.dir)
	out, err := cmd.CombinedOutput()
	if err == nil {
		return nil
	}
	log := fmt.Sprintf("%s.%d.log", p.path, n+1)
	return errors.Join(err, os.WriteFile(log, out, 0o600))
}

// load keeps two processors busy until stop is called.
func load() (stop func()) {
	var ended atomic.Bool
	for range 2 {
		go func() {
			for !ended.Load() { //nolint:revive // it is to spin
			}
		}()
	}
	return func() { ended.Store(true) }
}

func appendTo(file, line string) error {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(line)
	return errors.Join(err, f.Close())
}
