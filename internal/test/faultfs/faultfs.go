package faultfs

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/kvstored/kvstored/internal/test/nested"
)

// FS is a mounted file system. It is safe for concurrent use.
type FS struct {
	Dir string // where it is mounted

	mu  sync.Mutex // held over an order and its answer
	in  io.Writer
	out *bufio.Reader
}

// Mount shows a folder of its own until the test ends.
func Mount(t testing.TB) *FS {
	t.Helper()
	if _, err := os.Stat("/dev/fuse"); err != nil || os.Geteuid() != 0 {
		t.Skipf("no file system of a test's own can be mounted: /dev/fuse: %v; user %d", err, os.Geteuid())
	}
	program, err := nested.FaultFS.Find(t.Context())
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	f := &FS{Dir: t.TempDir()}
	ctx, stop := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, program, "-folder", t.TempDir(), "-mount", f.Dir)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	f.in, f.out = in, bufio.NewReader(out)
	t.Cleanup(func() {
		_ = in.Close() // unmounts
		err := cmd.Wait()
		stop()
		if err != nil {
			t.Errorf("unmount %s: %v", f.Dir, err)
			_ = exec.Command("umount", "-l", f.Dir).Run() // what can be done
		}
	})
	if says, err := f.out.ReadString('\n'); err != nil || says != "ok\n" {
		t.Skipf("no file system of a test's own can be mounted: %s (%v)", says, err)
	}
	return f
}

// order has the server obey, and returns its answer behind "ok".
func (f *FS) order(format string, args ...any) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, err := fmt.Fprintf(f.in, format+"\n", args...); err != nil {
		return "", fmt.Errorf("faultfs: %w", err)
	}
	says, err := f.out.ReadString('\n')
	answer, ok := strings.CutPrefix(says, "ok")
	if err != nil || !ok {
		return "", fmt.Errorf("faultfs: %q: %s (%v)", fmt.Sprintf(format, args...), says, err) //nolint:errorlint // err may be nil
	}
	return strings.TrimSpace(answer), nil
}

// Fail makes reads of bytes from..to of the files of a base name fail, and has
// the kernel drop their pages.
func (f *FS) Fail(name string, from, to int64) error {
	_, err := f.order("fail %s %d %d", name, from, to)
	return err
}

// FailWrites makes writes to the files fail whose base names match a pattern of
// filepath.Match without spaces, also to those that are made later: at once, or,
// of a page that is mapped, when it is synced.
func (f *FS) FailWrites(pattern string) error {
	_, err := f.order("failwrites %s", pattern)
	return err
}

// Met is how often something has failed since the last Heal.
func (f *FS) Met() (n int, err error) {
	answer, err := f.order("met")
	if err == nil {
		_, err = fmt.Sscan(answer, &n)
	}
	return n, err
}

// Heal ends all faults.
func (f *FS) Heal() error {
	_, err := f.order("heal")
	return err
}
