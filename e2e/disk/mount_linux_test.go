package disk_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// smallFileSystem mounts one of n bytes, where that is allowed.
func smallFileSystem(t *testing.T, n int64) (dir string, unmount func()) {
	t.Helper()
	dir = t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d", n)); err != nil {
		t.Skipf("no file system can be mounted here: %v", err)
	}
	return dir, func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Errorf("unmount: %v", err)
		}
	}
}

// breakableFileSystem mounts an ext4 of n bytes that goes read-only when fail
// is called, as one does whose device reports errors.
func breakableFileSystem(t *testing.T, n int64) (dir string, fail, unmount func()) {
	t.Helper()
	image := filepath.Join(t.TempDir(), "image")
	f, err := os.Create(image)
	if err == nil {
		err = errors.Join(f.Truncate(n), f.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	dir = t.TempDir()
	for _, args := range [][]string{
		{"mkfs.ext4", "-q", "-F", image},
		{"mount", "-o", "loop,errors=remount-ro", image, dir},
	} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Skipf("no file system can be made here: %v: %s", err, out)
		}
	}
	unmount = func() { // though something may be left behind that uses it
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Errorf("unmount: %v", err)
		}
	}
	out, err := exec.Command("findmnt", "-n", "-o", "SOURCE", dir).Output()
	trigger := filepath.Join("/sys/fs/ext4", filepath.Base(strings.TrimSpace(string(out))), "trigger_fs_error")
	if _, serr := os.Stat(trigger); err != nil || serr != nil {
		unmount()
		t.Skipf("the file system cannot be told to fail: %v %v", err, serr)
	}
	return dir, func() {
		if err := os.WriteFile(trigger, []byte("1"), 0); err != nil {
			t.Fatal(err)
		}
	}, unmount
}

// readOnlyMount is a file system that cannot be written to until remount.
func readOnlyMount(t *testing.T) (dir string, remount func()) {
	t.Helper()
	dir, unmount := smallFileSystem(t, 128*mib)
	t.Cleanup(unmount)
	set := func(flags uintptr) {
		if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_REMOUNT|flags, ""); err != nil {
			t.Fatal(err)
		}
	}
	set(unix.MS_RDONLY)
	return dir, func() { set(0) }
}
