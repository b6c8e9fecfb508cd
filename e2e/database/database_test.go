package database_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/kvstored/kvstored/internal/database"
)

// holderVar makes of this program a daemon: it names a folder whose database it
// opens and keeps open.
const holderVar = "KVSTORED_DATABASE_TEST_HOLD"

func TestMain(m *testing.M) {
	database.Main()
	if dir := os.Getenv(holderVar); dir != "" {
		d, err := database.Open(context.Background(), testOptions(dir))
		fmt.Println(err)
		if err == nil {
			fmt.Println(d.Pid())
			select {}
		}
		os.Exit(1)
	}
	m.Run()
}

func testOptions(dir string) database.Options {
	return database.Options{Dir: dir, MemTableBytes: 1 << 20, MaxValueBytes: 64 << 10, Log: zerolog.Nop()}
}

func open(t *testing.T, dir string) *database.DB {
	t.Helper()
	d, err := database.Open(t.Context(), testOptions(dir))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Kill(errors.New("the test is over")) })
	return d
}

func key(n int) []byte { return fmt.Appendf(nil, "k%06d", n) }

func value(n int) []byte { return bytes.Repeat([]byte{byte(n)}, n%5000) }

// fill commits n pairs in groups, the last of which is of many parts.
func fill(t *testing.T, d *database.DB, n int) {
	t.Helper()
	for i := range n {
		d.Batch().Set(key(i), value(i))
		if i < 10 || i == n-1 {
			if err := d.Batch().Flush(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// check reads all records of fill back but the deleted ones, by key and page by
// page.
func check(t *testing.T, d *database.DB, n int, deleted func(int) bool) {
	t.Helper()
	keys := make([][]byte, n)
	for i := range keys {
		keys[i] = key(i)
	}
	got := 0
	err := d.Get(keys, func(i int, v []byte) {
		if got++; deleted(i) != (v == nil) || v != nil && !bytes.Equal(v, value(i)) {
			t.Errorf("key %d has %d bytes (nil: %t)", i, len(v), v == nil)
		}
	})
	if err != nil || got != n {
		t.Fatalf("%d of %d keys: %v", got, n, err)
	}
	next, pages := 0, 0
	var after []byte
	for more := true; more; pages++ {
		more, err = d.Page([]byte("k"), after, 100, func(k, v []byte) error {
			for deleted(next) {
				next++
			}
			if !bytes.Equal(k, key(next)) || !bytes.Equal(v, value(next)) {
				t.Errorf("%q with %d bytes comes where %d is due", k, len(v), next)
			}
			after = k
			next++
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for next < n && deleted(next) {
		next++
	}
	if next != n || pages < n/400 {
		t.Errorf("%d of %d in %d pages", next, n, pages)
	}
}

func none(int) bool { return false }

// Committed records are there, by key and page by page, also after a close.
func TestDatabase(t *testing.T) {
	const n = 2000
	dir := filepath.Join(t.TempDir(), "db")
	d := open(t, dir)
	fill(t, d, n)
	check(t, d, n, none)
	for i := 0; i < n; i += 3 {
		d.Batch().Delete(key(i))
	}
	if err := errors.Join(d.Batch().Flush(), d.Sync()); err != nil {
		t.Fatal(err)
	}
	gone := func(i int) bool { return i%3 == 0 }
	check(t, d, n, gone)
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	d = open(t, dir)
	check(t, d, n, gone)
	no := errors.New("no")
	if _, err := d.Page([]byte("k"), nil, 10, func(_, _ []byte) error { return no }); !errors.Is(err, no) {
		t.Errorf("a page that is not wanted: %v", err)
	}
}

// TestPrivate: the files that the database makes are its user's alone under any
// umask of the daemon, and so are files that others had rights in before.
func TestPrivate(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0))
	dir := filepath.Join(t.TempDir(), "db")
	d := open(t, dir)
	fill(t, d, 1000)
	d.Close()
	others := func() (names []string) {
		err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			info, err := e.Info()
			if err == nil && info.Mode().Perm()&0o077 != 0 {
				names = append(names, fmt.Sprintf("%s %v", e.Name(), info.Mode()))
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return names
	}
	if names := others(); len(names) > 0 {
		t.Errorf("others have rights in %v", names)
	}
	paths, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("the database has files %v, %v", paths, err)
	}
	for _, path := range append(paths, dir) {
		mode := fs.FileMode(0o644)
		if path == dir {
			mode = 0o755
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	d = open(t, dir)
	defer d.Close()
	check(t, d, 1000, func(int) bool { return false })
	if names := others(); len(names) > 0 {
		t.Errorf("others keep rights in %v", names)
	}
}

// A process that is killed loses nothing, and says so to all who wait.
func TestKilled(t *testing.T) {
	dir := t.TempDir()
	d := open(t, dir)
	fill(t, d, 100)
	if err := syscall.Kill(d.Pid(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-d.Ended()
	d.Batch().Set(key(1), nil)
	for what, err := range map[string]error{
		"get": d.Get([][]byte{key(1)}, func(int, []byte) { t.Error("a value") }), "commit": d.Batch().Flush(), "sync": d.Sync(), "close": d.Close(), "err": d.Err(),
	} {
		var end *database.Death
		if !errors.As(err, &end) || end.How != "signal: killed" || !database.Ends(err) {
			t.Errorf("%s: %v", what, err)
		}
	}
	check(t, open(t, dir), 100, none)
}

// What ends the process is told in the words of the runtime.
func TestDeathSaysWhy(t *testing.T) {
	d := open(t, t.TempDir())
	if err := syscall.Kill(d.Pid(), syscall.SIGBUS); err != nil {
		t.Fatal(err)
	}
	<-d.Ended()
	if text := d.Err().Error(); !strings.Contains(text, "SIGBUS") || strings.Contains(text, "goroutine ") || len(text) > 500 {
		t.Error(text)
	}
}

// A process that does not answer is noticed, and can be ended; who waits for it
// is told why.
func TestHangs(t *testing.T) {
	d := open(t, t.TempDir())
	fill(t, d, 20)
	if d.Hangs(0) {
		t.Error("a process that has nothing to do hangs")
	}
	if err := syscall.Kill(d.Pid(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	asked := make(chan error, 2)
	untilFails := func(ask func() error) {
		var err error
		for err == nil { // the signal takes its time
			err = ask()
		}
		asked <- err
	}
	go untilFails(func() error { return d.Get([][]byte{key(1)}, func(int, []byte) {}) })
	go untilFails(func() error {
		for range 100 { // more than the sockets hold
			d.Batch().Set(key(1), make([]byte, 60<<10))
		}
		return d.Batch().Flush()
	})
	for !d.Hangs(10 * time.Millisecond) {
		time.Sleep(time.Millisecond)
	}
	why := errors.New("it hangs")
	d.Kill(why)
	for range 2 {
		if err := <-asked; !errors.Is(err, why) {
			t.Error(err)
		}
	}
	<-d.Ended()
}

// Signals that ask a daemon to end do not end its database.
func TestSignalsAreIgnored(t *testing.T) {
	d := open(t, t.TempDir())
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP} {
		if err := syscall.Kill(d.Pid(), s); err != nil {
			t.Fatal(err)
		}
	}
	fill(t, d, 100)
	check(t, d, 100, none)
}

// The process ends with the one that started it, before the next one opens the
// database.
func TestEndsWithParent(t *testing.T) {
	dir := t.TempDir()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for range 5 {
		cmd := exec.Command(exe)
		cmd.Env = append(os.Environ(), holderVar+"="+dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		var says string
		var pid int
		if _, err := fmt.Fscan(out, &says, &pid); err != nil || says != "<nil>" {
			t.Fatal(says, err)
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // killed
		for deadline := time.Now().Add(time.Minute); syscall.Kill(pid, 0) == nil; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal("the database's process outlives its daemon")
			}
		}
		d := open(t, dir)
		fill(t, d, 10)
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
