package disk_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kvstored/kvstored/disk"
	"github.com/kvstored/kvstored/internal/test/faultfs"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

func exists(path string) (bool, error) {
	_, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// No Sync succeeds while the database's logs cannot be written: neither the
// first one, which the kernel tells of it, nor the next, which it does not tell.
// The entry synced before is there afterwards, and no error counts as damage.
func TestSyncAmidEIO(t *testing.T) {
	fs := faultfs.Mount(t)
	o := options(filepath.Join(fs.Dir, "disk"))
	o.Buffered = true
	m := newMemory(t)
	k := start(t, o)
	awaitOpen(t, k)
	works(t, k, m, 0)
	if err := k.Sync(context.Background()); err != nil {
		t.Fatal(err)
	}
	if err := fs.FailWrites("*.mem"); err != nil {
		t.Fatal(err)
	}
	works(t, k, m, 1)
	for range 3 {
		if err := k.Sync(context.Background()); err == nil {
			t.Error("a sync succeeds")
		}
	}
	if err := fs.Heal(); err != nil {
		t.Fatal(err)
	}
	await(t, "the tier does not come back", func() bool { return k.Sync(context.Background()) == nil })
	if err := k.Recover(t.Context(), func([]tier.Record) {}); err != nil {
		t.Fatal(err)
	}
	if err := get(t, k, m, 0, 100_000); err != nil {
		t.Fatal(err)
	}
	if damaged, err := exists(filepath.Join(o.Paths[0], "badger.damaged")); damaged || err != nil {
		t.Errorf("the database was moved aside (%v)", err)
	}
}

// A file system that goes read-only under full load ends no process and hangs
// no call: puts fail, and the stored entries can be read.
func TestReadOnlyFileSystem(t *testing.T) {
	dir, fail, unmount := breakableFileSystem(t, 400*mib)
	defer unmount()
	o := options(dir)
	o.CapacityBytes = 200 * mib
	d := start(t, o)
	m := newMemory(t)
	for i := range 20 {
		if err := put(t, d, m, i, mib); err != nil {
			t.Fatal(err)
		}
	}
	var failed atomic.Bool
	var refused [4]int
	var g sync.WaitGroup
	for w := range 4 {
		g.Go(func() {
			for i := 100 + w; refused[w] < 20; i += 4 {
				err := put(t, d, m, i, 100+w%2*100_000)
				if errors.Is(err, tier.ErrNoSpace) && !failed.Load() {
					_, err = d.Trim(t.Context(), mib, nil)
				}
				if err != nil && !failed.Load() {
					t.Error(err)
				}
				if err != nil {
					refused[w]++
				} else if refused[w] > 10 {
					t.Errorf("put %d of a read-only file system", i)
				}
				if i == 300 {
					failed.Store(true)
					fail()
				}
			}
		})
	}
	g.Wait()
	for i := range 20 {
		if err := get(t, d, m, i, mib); err != nil && !errors.Is(err, tier.ErrNotFound) {
			t.Errorf("get %d: %v", i, err)
		}
	}
	_, _ = d.Trim(t.Context(), 10*mib, nil)
	_ = d.Delete(t.Context(), []key.Key{keyOf(1)})
}

// A file system that is read-only keeps a tier from being opened, and is no end of the
// start: the tier is off, says why, and is opened when that has passed.
func TestStartsReadOnly(t *testing.T) {
	dir, remount := readOnlyMount(t)
	k := start(t, options(filepath.Join(dir, "disk")))
	m := newMemory(t)
	if err := k.Trouble(); err == nil || !strings.Contains(err.Error(), "mount its file system writable") || !k.Off() {
		t.Errorf("off: %t, for %v", k.Off(), err)
	}
	if err := put(t, k, m, 1, 1000); !errors.Is(err, tier.ErrOff) {
		t.Errorf("put: %v", err)
	}
	remount()
	awaitOpen(t, k)
	if err := k.Recover(t.Context(), func([]tier.Record) {}); err != nil {
		t.Fatal(err)
	}
	works(t, k, m, 1)
}

// A limit of the size of files is no damage either.
func TestOpenWithoutLength(t *testing.T) {
	if inChild(t) {
		return
	}
	o := options(t.TempDir())
	m := newMemory(t)
	d := start(t, o)
	works(t, d, m, 0)
	if err := put(t, d, m, 1, 100); err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &was); err != nil {
		t.Fatal(err)
	}
	limit := func(bytes uint64) {
		if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: bytes, Max: was.Max}); err != nil {
			t.Fatal(err)
		}
	}
	limit(mib)
	off, err := disk.Open(o)
	limit(was.Cur)
	if err != nil {
		t.Fatal(err)
	}
	if why := off.Trouble(); why == nil || !strings.Contains(why.Error(), "raise the limit of the size of files") {
		t.Errorf("with files of a MiB at most: %v", why)
	}
	if err := off.Close(); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"badger.damaged", "kvstored.starts"} {
		if there, err := exists(filepath.Join(o.Paths[0], name)); there || err != nil {
			t.Errorf("%s is there: %t, %v", name, there, err)
		}
	}
	d = start(t, o)
	if err := errors.Join(get(t, d, m, 0, 100_000), get(t, d, m, 1, 100)); err != nil { // the second lies in the database
		t.Error(err)
	}
}

// inChild runs the test that calls it in a process of its own, and is false in
// that one: a limit of the size of files is the whole program's, and what go
// test has it write as well grows beyond any.
func inChild(t *testing.T) bool {
	t.Helper()
	const env = "KVSTORED_TEST_LIMITED"
	if os.Getenv(env) != "" {
		return false
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), exe, "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), env+"=1")
	out, err := cmd.CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte("--- PASS: "+t.Name())) {
		t.Errorf("%v\n%s", err, out)
	}
	return true
}
