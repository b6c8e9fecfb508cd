package history

import (
	"encoding/binary"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kvstored/kvstored/e2e/daemon"
)

// mostStep is how far the wall clock is set at most.
const mostStep = time.Hour

// clock is the wall clock of a daemon, which is built with another time.Now: one that adds
// the seconds in a file that the daemon maps. Nobody but root can set a process's wall
// clock, and no library that is loaded before it can that of a program in Go.
type clock struct {
	t      *testing.T
	file   string
	by     time.Duration // now
	latest time.Duration // at the start of any life
}

// clockVar, in the environment of the daemon, names the file.
const clockVar = "HISTORY_CLOCK"

// skewed is added to package time. A process that has no such file has the machine's clock.
const skewed = `package time

import (
	"sync/atomic"
	"syscall"
	"unsafe"
)

var skew *int64

func init() {
	name, _ := syscall.Getenv("` + clockVar + `")
	fd, err := syscall.Open(name, syscall.O_RDONLY, 0)
	if err != nil {
		return
	}
	if b, err := syscall.Mmap(fd, 0, 8, syscall.PROT_READ, syscall.MAP_SHARED); err == nil {
		skew = (*int64)(unsafe.Pointer(&b[0]))
	}
	syscall.Close(fd)
}

func skewedNow() (sec int64, nsec int32, mono int64) {
	sec, nsec, mono = runtimeNow()
	if skew != nil {
		sec += atomic.LoadInt64(skew)
	}
	return sec, nsec, mono
}
`

// newClock builds the daemon's program, which takes a minute for each change of it, and has
// the daemon use it.
func newClock(t *testing.T, d *daemon.Daemon) *clock {
	t.Helper()
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	source := filepath.Join(strings.TrimSpace(string(root)), "src", "time")
	text, err := os.ReadFile(filepath.Join(source, "time.go"))
	if err != nil {
		t.Fatal(err)
	}
	const before, after = "sec, nsec, mono := runtimeNow()\n\tif mono == 0 {", "sec, nsec, mono := skewedNow()\n\tif mono == 0 {"
	if strings.Count(string(text), before) != 1 {
		t.Fatal("time.Now of this Go is another: the test cannot change it")
	}
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	replace := map[string]string{
		filepath.Join(source, "time.go"):   write("time.go", strings.Replace(string(text), before, after, 1)),
		filepath.Join(source, "skewed.go"): write("skewed.go", skewed),
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	d.Program = filepath.Join(dir, "kvstored")
	build := exec.CommandContext(t.Context(), "go", "build", "-overlay", write("overlay.json", string(overlay)), "-o", d.Program, "./cmd/kvstored")
	build.Dir = daemon.Root()
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	c := &clock{t: t, file: write("clock", string(make([]byte, 8)))}
	d.Env = append(d.Env, clockVar+"="+c.file)
	return c
}

// set has the clock be ahead of the machine's.
func (c *clock) set(by time.Duration) {
	f, err := os.OpenFile(c.file, os.O_WRONLY, 0)
	if err == nil {
		_, err = f.Write(binary.NativeEndian.AppendUint64(nil, uint64(by/time.Second))) // in one piece, in its page
		_ = f.Close()
	}
	if err != nil {
		c.t.Error(err)
	}
	c.by = by
}

// step sets the clock by some time, back or forward, while the daemon runs.
func (c *clock) step(by time.Duration) { c.set(c.by + by) }

// forward sets the clock for the next life: not behind the start of any before it, plus the
// time since. What has an end would be found longer otherwise, as is written.
func (c *clock) forward(by time.Duration) {
	c.latest += by
	c.set(c.latest)
}
