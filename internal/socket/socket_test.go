package socket

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
)

func TestListen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	gid := os.Getgid()
	l, err := Listen(path, 0o620, strconv.Itoa(gid))
	if err != nil {
		t.Fatal(err)
	}
	own, err := os.Lstat(path)
	if err != nil || own.Mode() != os.ModeSocket|0o620 {
		t.Errorf("made %v, %v", own.Mode(), err)
	}
	// A live socket is never taken over.
	if _, err := Listen(path, 0o600, ""); err == nil || !strings.Contains(err.Error(), "another process") {
		t.Errorf("listening twice: %v", err)
	}
	if c, err := net.Dial("unix", path); err != nil {
		t.Error("the live one is gone: ", err)
	} else {
		c.Close()
	}
	l.Close() // as a crash does: the file stays
	second, err := Listen(path, 0o600, "")
	if err != nil {
		t.Fatal("a stale socket was not replaced: ", err)
	}
	defer second.Close()
	if err := Unlisten(path, own); err != nil {
		t.Error(err)
	}
	now, err := os.Lstat(path)
	if err != nil {
		t.Fatal("the first daemon removed the second's socket: ", err)
	}
	if err := Unlisten(path, now); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		t.Error("the socket stays: ", err)
	}
	if _, err := os.Lstat(path + ".lock"); !os.IsNotExist(err) {
		t.Error("the lock stays: ", err)
	}
	if err := Unlisten(path, now); err != nil {
		t.Error("removing it again: ", err)
	}
}

func TestListenRefuses(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(file, link); err != nil {
		t.Fatal(err)
	}
	for what, tc := range map[string]struct{ path, group string }{
		"a file":        {file, ""},
		"a link":        {link, ""},
		"a folder":      {dir, ""},
		"no folder":     {filepath.Join(dir, "no", "s"), ""},
		"a long path":   {filepath.Join(dir, strings.Repeat("x", 120)), ""},
		"unknown group": {filepath.Join(dir, "s"), "no such group"},
	} {
		if l, err := Listen(tc.path, 0o600, tc.group); err == nil {
			l.Close()
			t.Errorf("%s: it listens", what)
		}
	}
	if b, err := os.ReadFile(file); err != nil || string(b) != "precious" {
		t.Errorf("the file is now %q, %v", b, err)
	}
	for _, left := range []string{"s", "s~", "s.lock"} {
		if _, err := os.Lstat(filepath.Join(dir, left)); err == nil {
			t.Errorf("%s was left behind", left)
		}
	}
}

// CanListen fails where Listen does, and changes nothing.
func TestCanListen(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "s")
	files := func() (names []string) {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			names = append(names, e.Name())
		}
		return names
	}
	if err := CanListen(path, 0o600, ""); err != nil || len(files()) > 0 {
		t.Errorf("in an empty folder: %v; now there is %q", err, files())
	}
	for _, tc := range []struct{ path, group string }{{path, "no such group"}, {filepath.Join(dir, "no", "s"), ""}, {dir, ""}} {
		if err := CanListen(tc.path, 0o600, tc.group); err == nil || !strings.HasPrefix(err.Error(), "listen on "+tc.path) {
			t.Errorf("%v: %v", tc, err)
		}
	}
	l, err := Listen(path, 0o600, "")
	if err != nil {
		t.Fatal(err)
	}
	own, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := CanListen(path, 0o600, ""); err == nil || !strings.Contains(err.Error(), "another process") {
		t.Errorf("where a daemon listens: %v", err)
	}
	l.Close()
	if err := CanListen(path, 0o600, ""); err != nil {
		t.Errorf("where one has crashed: %v", err)
	}
	now, err := os.Lstat(path)
	if err != nil || !os.SameFile(own, now) || len(files()) != 1 {
		t.Errorf("its socket is %v, %v, among %q", now, err, files())
	}
}

// A file that happens to have the name a socket is first bound under is kept.
func TestListenKeepsFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	if err := os.WriteFile(path+"~", []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := CanListen(path, 0o600, ""); err == nil {
		t.Error("it could listen in place of a file")
	}
	if l, err := Listen(path, 0o600, ""); err == nil {
		l.Close()
		t.Error("it listens in place of a file")
	}
	if text, err := os.ReadFile(path + "~"); string(text) != "precious" {
		t.Errorf("the file has %q, %v", text, err)
	}
	if err := os.Remove(path + "~"); err != nil {
		t.Fatal(err)
	}
	stale, err := net.ListenUnix("unix", &net.UnixAddr{Name: path + "~", Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	stale.SetUnlinkOnClose(false)
	stale.Close()
	if err := CanListen(path, 0o600, ""); err != nil {
		t.Errorf("beside a socket that nobody serves: %v", err)
	}
}

// The longest path that a configuration may have can be listened at.
func TestListenLongPath(t *testing.T) {
	const longest = 106
	dir, err := os.MkdirTemp("", "s") // that of the test may be too long
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	dir += "/"
	if len(dir) >= longest {
		t.Skipf("%s is too long", dir)
	}
	path := dir + strings.Repeat("s", longest-len(dir))
	l, err := Listen(path, 0o600, "")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	if err := CanListen(path+"s", 0o600, ""); err == nil || !strings.Contains(err.Error(), "at most 106 bytes") {
		t.Errorf("a longer one: %v", err)
	}
}

// Of many daemons that find a stale socket at the same moment exactly one gets
// it, and it stays that one's.
func TestListenRace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	for round := range 20 {
		stale, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		stale.SetUnlinkOnClose(false)
		stale.Close()
		var mu sync.Mutex
		var won []*net.UnixListener
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				l, err := Listen(path, 0o600, "")
				if err == nil {
					mu.Lock()
					defer mu.Unlock()
					won = append(won, l)
				}
			})
		}
		wg.Wait()
		if len(won) != 1 {
			t.Fatalf("round %d: %d daemons listen", round, len(won))
		}
		c, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal("the winner cannot be reached: ", err)
		}
		c.Close()
		own, err := os.Lstat(path)
		if err != nil {
			t.Fatal(err)
		}
		won[0].Close()
		if err := Unlisten(path, own); err != nil {
			t.Fatal(err)
		}
	}
}

// While one daemon stops and another starts, the new one's socket stays.
func TestUnlistenRace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	old, err := Listen(path, 0o600, "")
	if err != nil {
		t.Fatal(err)
	}
	for round := range 50 {
		own, err := os.Lstat(path)
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		errs := make(chan error, 1)
		wg.Go(func() {
			old.Close()
			errs <- Unlisten(path, own)
		})
		var next *net.UnixListener
		for next == nil {
			if next, err = Listen(path, 0o600, ""); err != nil && !strings.Contains(err.Error(), "another process") {
				t.Fatal(err)
			}
		}
		wg.Wait()
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
		c, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(fmt.Errorf("round %d: the new daemon cannot be reached: %w", round, err))
		}
		c.Close()
		old = next
	}
	old.Close()
}

// A lock that is another user's is not waited for: who holds it need never let
// go, neither at the start nor at the end.
func TestLockOfAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("takes root, to give files away")
	}
	path := filepath.Join(t.TempDir(), "sock")
	l, err := Listen(path, 0o600, "")
	if err != nil {
		t.Fatal(err)
	}
	own, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	if err := os.WriteFile(path+".lock", nil, 0o666); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(path+".lock", 4242, -1); err != nil {
		t.Fatal(err)
	}
	want := path + ".lock: it belongs to user 4242"
	if err := Unlisten(path, own); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("the end: %v", err)
	}
	if _, err := Listen(path, 0o600, ""); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("the start: %v", err)
	}
	if err := os.Remove(path + ".lock"); err != nil {
		t.Fatal(err)
	}
	if err := Unlisten(path, own); err != nil {
		t.Errorf("once it is removed: %v", err)
	}
}

// TestLockIsNoLink: a symbolic link where the lock is to be is not followed: what
// it leads to is neither made nor opened, and the error says so.
func TestLockIsNoLink(t *testing.T) {
	dir := t.TempDir()
	target, there := filepath.Join(dir, "target"), filepath.Join(dir, "there")
	if err := os.WriteFile(there, []byte("precious"), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, to := range map[string]string{"none": target, "file": there} {
		path := filepath.Join(dir, name+".sock")
		if err := os.Symlink(to, path+".lock"); err != nil {
			t.Fatal(err)
		}
		l, err := Listen(path, 0o600, "")
		if err == nil || !strings.Contains(err.Error(), path+".lock: it is a symbolic link, which is not followed; remove it") {
			t.Errorf("%s: got %v, %v", name, l, err)
		}
		if err := CanListen(path, 0o600, ""); err == nil {
			t.Errorf("%s: it could listen", name)
		}
		if _, err := os.Lstat(path + ".lock"); err != nil {
			t.Errorf("%s: the link is gone: %v", name, err)
		}
		if err := os.Remove(path + ".lock"); err != nil {
			t.Fatal(err)
		}
		if l, err = Listen(path, 0o600, ""); err != nil {
			t.Errorf("%s: once it is removed: %v", name, err)
			continue
		}
		l.Close()
	}
	if _, err := os.Lstat(target); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the link's target was made: %v", err)
	}
	if text, err := os.ReadFile(there); err != nil || string(text) != "precious" {
		t.Errorf("the link's target has %q, %v", text, err)
	}
}
