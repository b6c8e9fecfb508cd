package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/kvstored/kvstored/e2e/daemon"
)

const (
	module = "github.com/kvstored/kvstored"
	// What a test and a package of the root may take of the processors: twice the bar.
	// The same tests took 49 and 69 s on machines of one kind.
	mostTest    = 2 * time.Second
	mostPackage = 20 * time.Second
	// dearest is how many packages are printed.
	dearest = 12
)

// use is what one test program took.
type use struct {
	Dir       string // that it ran in
	Processor time.Duration
}

// account runs a test program and adds its use to a file. It returns its exit code.
func account(file string, args []string) int {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = slices.DeleteFunc(os.Environ(), func(kv string) bool { return strings.HasPrefix(kv, usageVar+"=") })
	err := cmd.Run()
	if cmd.ProcessState == nil {
		fmt.Fprintln(os.Stderr, "ci:", err)
		return 1
	}
	dir, _ := os.Getwd() // the package's, or the use is nobody's
	line, _ := json.Marshal(use{dir, processor(cmd)})
	f, err := os.OpenFile(file, os.O_APPEND|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = f.Write(append(line, '\n'))
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "ci:", err)
		return 1
	}
	return cmd.ProcessState.ExitCode()
}

// processor is the time that a process that has ended took of the processors, with its
// children.
func processor(cmd *exec.Cmd) time.Duration {
	return cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
}

// weigh runs the suite of the root, or with -C of a module below it, and holds it to its
// limits.
func weigh(ctx context.Context, args []string) error {
	folder := daemon.Root()
	if len(args) > 1 && args[0] == "-C" {
		folder, args = filepath.Join(folder, args[1]), args[2:]
	}
	usage, err := os.CreateTemp("", "kvstored-ci-")
	if err != nil {
		return err
	}
	defer os.Remove(usage.Name())
	usage.Close()
	self, err := os.Executable()
	if err != nil {
		return err
	}
	if len(args) == 0 {
		args = []string{"./..."}
	}
	r, err := goTest(ctx, os.Stdout, folder, append(os.Environ(), usageVar+"="+usage.Name()), append([]string{"-exec", self}, args...)...)
	if err != nil {
		return err
	}
	uses, err := read(usage.Name())
	if err != nil {
		return err
	}
	report(os.Stdout, uses)
	if len(r.broken) > 0 {
		return fmt.Errorf("failed, and a test of the root has one try: %s", strings.Join(slices.Sorted(maps.Keys(r.broken)), ", "))
	}
	return limits(ctx, r, uses)
}

// read reads a file of uses, the dearest first. Packages are named from the root.
func read(file string) (uses []use, err error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	for dec := json.NewDecoder(f); ; {
		var u use
		if err := dec.Decode(&u); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, err
		}
		if u.Dir, err = filepath.Rel(daemon.Root(), u.Dir); err != nil {
			return nil, err
		}
		uses = append(uses, u)
	}
	slices.SortFunc(uses, func(a, b use) int { return cmp.Compare(b.Processor, a.Processor) })
	return uses, nil
}

func report(out io.Writer, uses []use) {
	if len(uses) == 0 {
		return
	}
	var all time.Duration
	for _, u := range uses {
		all += u.Processor
	}
	fmt.Fprintf(out, "\n%d test programs took %.1f s of the processors; the dearest:\n", len(uses), all.Seconds())
	for _, u := range uses[:min(dearest, len(uses))] {
		fmt.Fprintf(out, "%7.1f s  %s\n", u.Processor.Seconds(), u.Dir)
	}
}

// limits measures alone what seems to take too much, and is an error for what does.
func limits(ctx context.Context, r *results, uses []use) error {
	var over []string
	for _, u := range uses {
		if u.Processor <= mostPackage {
			break
		}
		took, err := least(ctx, u.Dir, "", mostPackage)
		if err != nil {
			over = append(over, err.Error())
		} else if took > mostPackage {
			over = append(over, fmt.Sprintf("%s takes %.1f s of the processors; a package of the root may take %v", u.Dir, took.Seconds(), mostPackage))
		}
	}
	for k, seconds := range r.elapsed {
		if seconds*float64(runtime.NumCPU()) <= mostTest.Seconds() {
			continue // it cannot have taken more
		}
		dir := strings.TrimPrefix(strings.TrimPrefix(k.pkg, module), "/")
		took, err := least(ctx, cmp.Or(dir, "."), k.name, mostTest)
		if err != nil {
			over = append(over, err.Error())
		} else if took > mostTest {
			over = append(over, fmt.Sprintf("%s takes %.1f s of the processors; a test of the root may take %v", k, took.Seconds(), mostTest))
		}
	}
	slices.Sort(over)
	if len(over) > 0 {
		return errors.New(strings.Join(over, "\n"))
	}
	return nil
}

// least is alone, the best of up to three measurements where one is over the limit: the
// machine adds to them, and never takes away.
func least(ctx context.Context, dir, test string, limit time.Duration) (took time.Duration, err error) {
	for n := range 3 {
		again, err := alone(ctx, dir, test)
		if err != nil {
			return 0, err
		}
		if took = min(again, cmp.Or(took, again)); took <= limit || n == 2 {
			break
		}
	}
	return took, nil
}

// alone is what a package's tests take, or one of them, with nothing beside.
func alone(ctx context.Context, dir, test string) (time.Duration, error) {
	program, err := os.CreateTemp("", "kvstored-ci-*.test")
	if err != nil {
		return 0, err
	}
	program.Close()
	defer os.Remove(program.Name())
	build := exec.CommandContext(ctx, "go", "test", "-c", "-o", program.Name(), ".")
	build.Dir = filepath.Join(daemon.Root(), dir)
	if out, err := build.CombinedOutput(); err != nil {
		return 0, fmt.Errorf("build the tests of %s: %w\n%s", dir, err, out)
	}
	args := []string{"-test.timeout=10m"}
	if test != "" {
		args = append(args, "-test.run=^"+test+"$")
	}
	cmd := exec.CommandContext(ctx, program.Name(), args...)
	cmd.Dir = build.Dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return 0, fmt.Errorf("%s %s, measured alone: %w\n%s", dir, test, err, out)
	}
	return processor(cmd), nil
}
