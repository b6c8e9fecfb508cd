package main

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kvstored/kvstored/internal/nested"
)

// freshRoot is a root folder that starts as this machine's and forgets all that
// is done to it.
type freshRoot struct {
	t       *testing.T
	dir     string // the root
	changed string // what was done to it
}

// newRoot needs root, and a kernel that lays one file system over another.
func newRoot(t *testing.T) *freshRoot {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("to install a package takes root")
	}
	if _, err := exec.LookPath("dpkg"); err != nil {
		t.Skip("this is no Debian: ", err)
	}
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

func unmount(t *testing.T, dir string) {
	t.Helper()
	if err := syscall.Unmount(dir, 0); err != nil {
		t.Errorf("unmount %s: %v", dir, err)
		_ = syscall.Unmount(dir, syscall.MNT_DETACH)
	}
}

// command is a command in the fresh root, of the user that is called user there.
func (r *freshRoot) command(user string, args ...string) *exec.Cmd {
	if user != "root" {
		args = append([]string{"setpriv", "--reuid=" + user, "--regid=" + user, "--clear-groups"}, args...)
	}
	cmd := exec.CommandContext(r.t.Context(), "/usr/bin/env", args...)
	cmd.Dir = "/"
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND=noninteractive",
		"KVSTORED_CPU__CAPACITY=64MiB", "KVSTORED_DISK__CAPACITY=512MiB", "KVSTORED_DISK__SEGMENT_SIZE=64MiB", "KVSTORED_DISK__MIN_FREE=0", "KVSTORED_ADMIN__LISTEN=", "KVSTORED_UPGRADE__HAND_OVER=true"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: r.dir}
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
	return r.running("keep", func() bool { return r.command("root", "test", "-S", "/run/kvstored/kvstored.sock.keep").Run() == nil })
}

// daemon runs the daemon as its unit does, until stop.
func (r *freshRoot) daemon() (stop func()) {
	return r.running("serve", func() bool { return strings.Contains(r.stats(), "cpu") })
}

// running runs a command of the daemon's user until stop. It is up once ready says so.
func (r *freshRoot) running(command string, ready func() bool) (stop func()) {
	r.t.Helper()
	r.run("install", "-d", "-o", "kvstored", "-g", "kvstored", "-m", "0750", "/run/kvstored")
	var log bytes.Buffer
	cmd := r.command("kvstored", "/usr/bin/kvstored", command, "--config", "/etc/kvstored/kvstored.yaml")
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for !ready() {
		select {
		case err := <-ended:
			r.t.Fatalf("%s ended: %v\n%s", command, err, &log)
		case <-r.t.Context().Done():
			r.t.Fatal(command + " did not start")
		case <-time.After(20 * time.Millisecond):
		}
	}
	return func() {
		r.t.Helper()
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			r.t.Fatal(err)
		}
		if err := <-ended; err != nil {
			r.t.Fatalf("the end of %s: %v\n%s", command, err, &log)
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

// packages builds two versions of the package into the root's /tmp.
func (r *freshRoot) packages() (older, newer string) {
	r.t.Helper()
	release, err := nested.Release.Find(r.t.Context())
	if err != nil {
		if os.Getenv("CI") != "" {
			r.t.Fatal(err)
		}
		r.t.Skip(err)
	}
	program := filepath.Join(r.t.TempDir(), "kvstored")
	build := exec.CommandContext(r.t.Context(), "go", "build", "-o", program, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		r.t.Fatalf("%v\n%s", err, out)
	}
	made := func(version string) string {
		dir := filepath.Join(r.t.TempDir(), version)
		out, err := exec.CommandContext(r.t.Context(), release, "-source", "../..", "-out", dir, "-program", program, "-version", version).CombinedOutput()
		if err != nil {
			r.t.Fatalf("release: %v\n%s", err, out)
		}
		debs, err := filepath.Glob(filepath.Join(dir, "*.deb"))
		if err != nil || len(debs) != 1 {
			r.t.Fatalf("%d packages: %v", len(debs), err)
		}
		data, err := os.ReadFile(debs[0])
		if err != nil {
			r.t.Fatal(err)
		}
		inside := "/tmp/" + filepath.Base(debs[0])
		if err := os.WriteFile(filepath.Join(r.dir, inside), data, 0o644); err != nil {
			r.t.Fatal(err)
		}
		return inside
	}
	return made("0.1.0"), made("0.1.1")
}

// TestDeb leaves the triggers of other packages out: man-db would read all pages of
// this machine. The package installs, its daemon stores, an upgrade keeps what is
// stored and what was configured, removing keeps both, and purging keeps nothing.
func TestDeb(t *testing.T) {
	r := newRoot(t)
	older, newer := r.packages()
	r.run("dpkg", "--no-triggers", "-i", older)
	for _, line := range strings.Split(r.run("cat", "/usr/lib/systemd/system/kvstored.service"), "\n") {
		if program, ok := strings.CutPrefix(line, "ExecStart="); ok {
			r.run("test", "-x", strings.Fields(program)[0])
		}
	}
	r.run("kvstored", "version")
	r.run("gzip", "-t", "/usr/share/man/man1/kvstored-serve.1.gz")
	r.run("bash", "-n", "/usr/share/bash-completion/completions/kvstored")
	user := r.run("id", "kvstored")
	r.run("sh", "-c", "echo '# edited' >> /etc/kvstored/kvstored.yaml")

	payload := strings.Repeat("kv of a prompt. ", 256)
	stopKeeping := r.keeper()
	stop := r.daemon()
	put := r.command("root", "kvstored", "put", "--text", strings.Repeat("t", 256))
	put.Stdin = strings.NewReader(payload)
	if out, err := put.CombinedOutput(); err != nil {
		t.Fatalf("put: %v\n%s", err, out)
	}
	stop()

	r.run("dpkg", "--no-triggers", "-i", newer)
	if got := r.run("dpkg-query", "-W", "-f", "${Version}", "kvstored"); got != "0.1.1" {
		t.Errorf("after the upgrade the version is %s", got)
	}
	if got := r.run("id", "kvstored"); got != user {
		t.Errorf("after the upgrade the user is %s, was %s", got, user)
	}
	if !strings.HasSuffix(r.run("cat", "/etc/kvstored/kvstored.yaml"), "# edited\n") {
		t.Error("the upgrade has replaced the configuration")
	}
	stop = r.daemon()
	var st statsView
	if err := json.Unmarshal([]byte(r.stats()), &st); err != nil || st.Store.Tiers["cpu"].Entries != 1 {
		t.Errorf("after the upgrade DRAM has %d chunks, not the one that was put: %v", st.Store.Tiers["cpu"].Entries, err)
	}
	r.run("kvstored", "get", "--text", strings.Repeat("t", 256), "-o", "/tmp/got")
	if got := r.run("cat", "/tmp/got"); got != payload {
		t.Errorf("after the upgrade get returns %d bytes, not the %d that were put", len(got), len(payload))
	}
	stop()
	stopKeeping()

	r.run("dpkg", "--no-triggers", "-r", "kvstored")
	if out, err := r.command("root", "test", "-e", "/usr/bin/kvstored").CombinedOutput(); err == nil {
		t.Errorf("after removing the program is there %s", out)
	}
	r.run("test", "-d", "/var/lib/kvstored/.")
	r.run("test", "-f", "/etc/kvstored/kvstored.yaml")

	r.run("dpkg", "--no-triggers", "--purge", "kvstored")
	r.run("rm", older, newer)
	if left := r.left(); len(left) > 0 {
		t.Errorf("after purging there are %v", left)
	}
	if strings.Contains(r.run("cat", "/etc/passwd", "/etc/group"), "kvstored") {
		t.Error("after purging the user is there")
	}
}
