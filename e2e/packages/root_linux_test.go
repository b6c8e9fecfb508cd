package packages_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kvstored/kvstored/e2e/need"
)

// freshRoot is a root folder that starts as this machine's and forgets all that
// is done to it.
type freshRoot struct {
	t       *testing.T
	dir     string   // the root
	changed string   // what was done to it
	enter   []string // before a command, where a system runs in the root; else it is a chroot
}

// newRoot needs root, and a kernel that lays one file system over another.
func newRoot(t *testing.T) *freshRoot {
	t.Helper()
	need.Root(t)
	top := t.TempDir()
	if err := syscall.Mount("none", top, "tmpfs", 0, ""); err != nil {
		t.Skip("no file system can be mounted: ", err)
	}
	t.Cleanup(func() { unmount(t, top) })
	r := &freshRoot{t: t, dir: filepath.Join(top, "root"), changed: filepath.Join(top, "changed")}
	work := filepath.Join(top, "work")
	for _, dir := range []string{r.dir, r.changed, work} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mount("overlay", r.dir, "overlay", 0, "lowerdir=/,upperdir="+r.changed+",workdir="+work); err != nil {
		t.Skip("no root can be laid over this machine's: ", err)
	}
	t.Cleanup(func() { unmount(t, r.dir) })
	for _, dir := range []string{"proc", "dev"} { // dpkg and the daemon want them
		inside := filepath.Join(r.dir, dir)
		if err := syscall.Mount("/"+dir, inside, "", syscall.MS_BIND, ""); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unmount(t, inside) })
	}
	return r
}

// unmount waits for the kernel to let go of the files of processes that have ended.
func unmount(t *testing.T, dir string) {
	t.Helper()
	err := syscall.Unmount(dir, 0)
	for end := time.Now().Add(time.Minute); errors.Is(err, syscall.EBUSY) && time.Now().Before(end); err = syscall.Unmount(dir, 0) {
		time.Sleep(20 * time.Millisecond)
	}
	if err != nil {
		t.Errorf("unmount %s: %v", dir, err)
		_ = syscall.Unmount(dir, syscall.MNT_DETACH)
	}
}

// inRoot is how a daemon in a fresh root is configured.
var inRoot = []string{"KVSTORED_CPU__CAPACITY=64MiB", "KVSTORED_DISK__CAPACITY=512MiB", "KVSTORED_DISK__MIN_FREE=0", "KVSTORED_ADMIN__LISTEN=", "KVSTORED_CPU__KEEP=true"}

// command is a command in the fresh root, of the user that is called user there.
func (r *freshRoot) command(user string, args ...string) *exec.Cmd {
	if user != "root" {
		args = append([]string{"setpriv", "--reuid=" + user, "--regid=" + user, "--clear-groups"}, args...)
	}
	args = append(slices.Clone(r.enter), append([]string{"/usr/bin/env"}, args...)...)
	cmd := exec.CommandContext(r.t.Context(), args[0], args[1:]...)
	cmd.Env = append([]string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND=noninteractive"}, inRoot...)
	if len(r.enter) == 0 {
		cmd.Dir, cmd.SysProcAttr = "/", &syscall.SysProcAttr{Chroot: r.dir}
	}
	return cmd
}

// run returns what a command of root prints, and fails the test if it fails.
func (r *freshRoot) run(args ...string) string {
	r.t.Helper()
	out, err := r.command("root", args...).CombinedOutput()
	if err != nil {
		r.t.Fatalf("%v: %v\n%s", args, err, out)
	}
	return string(out)
}

// keeper runs what keeps the memory of the daemon, as systemd does for its unit.
func (r *freshRoot) keeper() (stop func()) {
	return r.running(func() bool { return r.command("root", "test", "-S", "/run/kvstored/kvstored.sock.keep").Run() == nil }, "--keeper")
}

// daemon runs the daemon as its unit does, until stop.
func (r *freshRoot) daemon() (stop func()) {
	return r.running(func() bool { return strings.Contains(r.stats(), "cpu") })
}

// running runs serve as the daemon's user until stop. It is up once ready says so.
func (r *freshRoot) running(ready func() bool, more ...string) (stop func()) {
	r.t.Helper()
	r.run("install", "-d", "-o", "kvstored", "-g", "kvstored", "-m", "0750", "/run/kvstored")
	var log bytes.Buffer
	command := append([]string{"serve", "--config", "/etc/kvstored/kvstored.yaml"}, more...)
	cmd := r.command("kvstored", append([]string{"/usr/bin/kvstored"}, command...)...)
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		if r.t.Failed() {
			r.t.Logf("log of %v:\n%s", command, &log)
		}
	})
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for !ready() {
		select {
		case err := <-ended:
			r.t.Fatalf("%v ended: %v\n%s", command, err, &log)
		case <-r.t.Context().Done():
			r.t.Fatalf("%v did not start", command)
		case <-time.After(20 * time.Millisecond):
		}
	}
	return func() {
		r.t.Helper()
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			r.t.Fatal(err)
		}
		if err := <-ended; err != nil {
			r.t.Fatalf("the end of %v: %v\n%s", command, err, &log)
		}
	}
}

// stats is what the daemon says of itself; "" while it does not answer.
func (r *freshRoot) stats() string {
	out, err := r.command("root", "/usr/bin/kvstored", "stats", "--json").Output()
	if err != nil {
		return ""
	}
	return string(out)
}

// left are the files of kvstored that were added to the root, but for dpkg's own
// notes.
func (r *freshRoot) left() (paths []string) {
	r.t.Helper()
	err := filepath.WalkDir(r.changed, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		// A character device stands for a file that is gone.
		if strings.Contains(d.Name(), "kvstored") && info.Mode()&fs.ModeCharDevice == 0 {
			paths = append(paths, strings.TrimPrefix(path, r.changed))
		}
		return nil
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return paths
}

// bootScript makes a root a system's and starts systemd as its first process, in
// namespaces of its own. It gets the root and a folder of cgroups.
const bootScript = `set -e
echo $$ > "$2/cgroup.procs"
exec unshare --pid --fork --mount --cgroup --uts --ipc --kill-child sh -ec '
mount -t proc proc "$1/proc"
mount -t tmpfs -o mode=755 tmpfs "$1/run"
mount -t tmpfs -o mode=755 tmpfs "$1/sys"
mkdir -p "$1/sys/fs/cgroup"
mount -t cgroup2 cgroup2 "$1/sys/fs/cgroup"
cd "$1"
pivot_root . mnt
umount -l /mnt
container=other exec /lib/systemd/systemd --system --unit=nothing.target --log-target=null --show-status=no </dev/null
' sh "$1"`

// boot starts systemd in the root, where the kernel has a second version of cgroups that
// can be written.
func (r *freshRoot) boot() {
	r.t.Helper()
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		r.t.Fatal(err)
	}
	group := ""
	for line := range strings.Lines(string(mounts)) {
		if f := strings.Fields(line); len(f) > 2 && f[2] == "cgroup2" {
			group = filepath.Join(f[1], "kvstored-test-"+strconv.Itoa(os.Getpid()))
		}
	}
	if group == "" || os.Mkdir(group, 0o755) != nil {
		r.t.Skip("no cgroups of version 2 can be made")
	}
	target := filepath.Join(r.dir, "etc/systemd/system/nothing.target")
	if err := os.WriteFile(target, []byte("[Unit]\nDescription=nothing\nDefaultDependencies=no\nAllowIsolate=yes\n"), 0o644); err != nil {
		r.t.Fatal(err)
	}
	cmd := exec.CommandContext(r.t.Context(), "sh", "-c", bootScript, "sh", r.dir, group)
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	children := fmt.Sprintf("/proc/%d/task/%d/children", cmd.Process.Pid, cmd.Process.Pid)
	init := 0
	r.t.Cleanup(func() {
		if init > 0 {
			_ = syscall.Kill(init, syscall.SIGKILL)
		} else {
			_ = cmd.Process.Kill()
		}
		_ = cmd.Wait()
		removeGroups(group)
	})
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if text, err := os.ReadFile(children); err == nil {
			_, _ = fmt.Sscan(string(text), &init)
		}
		if init > 0 {
			r.enter = []string{"nsenter", "-t", strconv.Itoa(init), "-m", "-p", "-C", "-i", "-u", "-r", "-w"}
			out, err := r.command("root", "systemctl", "is-system-running").Output()
			if err == nil && strings.TrimSpace(string(out)) == "running" {
				return
			}
		}
		if time.Now().After(deadline) {
			r.t.Fatalf("systemd does not run: %s", &log)
		}
	}
}

// removeGroups removes a folder of cgroups with those below it, whose processes end.
func removeGroups(top string) {
	for range 100 {
		var dirs []string
		_ = filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				dirs = append(dirs, path)
			}
			return nil
		})
		for _, dir := range slices.Backward(dirs) {
			_ = syscall.Rmdir(dir)
		}
		if _, err := os.Stat(top); err != nil {
			return
		}
		time.Sleep(20 * time.Millisecond) // until they have ended
	}
}
