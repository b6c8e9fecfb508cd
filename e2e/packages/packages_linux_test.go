package packages_test

import (
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kvstored/kvstored/e2e/daemon"
	"github.com/kvstored/kvstored/e2e/need"
	"github.com/kvstored/kvstored/internal/test/nested"
)

var packagers = flag.String("install", "deb", "what TestPackages installs and removes: deb, rpm, systemd (the deb, under a systemd of its own), or all")

// packages are those of two versions of the daemon, of the router and of the lab, by what
// ends their names.
type packages struct{ older, newer, router, lab map[string]string }

// makePackages builds the programs, and packages of them.
func makePackages(t *testing.T) (p packages) {
	t.Helper()
	release, err := nested.Release.Find(t.Context())
	if err != nil {
		need.Missing(t, "%v", err)
	}
	built := func(name, folder string) string {
		program := filepath.Join(t.TempDir(), name)
		build := exec.CommandContext(t.Context(), "go", "build", "-o", program, ".")
		build.Dir = filepath.Join(daemon.Root(), folder)
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return program
	}
	program, router := built("kvstored", "cmd/kvstored"), built("kvstored-router", "router/cmd/kvstored-router")
	made := func(program, version string) map[string]string {
		dir := filepath.Join(t.TempDir(), filepath.Base(program)+version)
		out, err := exec.CommandContext(t.Context(), release, "-source", daemon.Root(), "-out", dir, "-program", program, "-version", version).CombinedOutput()
		if err != nil {
			t.Fatalf("release: %v\n%s", err, out)
		}
		files := map[string]string{}
		for _, kind := range []string{"deb", "rpm"} {
			found, err := filepath.Glob(filepath.Join(dir, "*."+kind))
			if err != nil || len(found) != 1 {
				t.Fatalf("%d packages: %v", len(found), err)
			}
			files[kind] = found[0]
		}
		return files
	}
	return packages{made(program, "0.1.0"), made(program, "0.1.1"), made(router, "0.1.0"), made(built("kvstored-lab", "lab/cmd/kvstored-lab"), "0.1.0")}
}

// bring copies a file into the root's /srv: over /tmp systemd lays another.
func (r *freshRoot) bring(path string) (inside string) {
	r.t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		r.t.Fatal(err)
	}
	inside = "/srv/" + filepath.Base(path)
	if err := os.WriteFile(filepath.Join(r.dir, inside), data, 0o644); err != nil {
		r.t.Fatal(err)
	}
	return inside
}

// TestPackages installs, upgrades and removes in a root that forgets it. The package
// installs, its daemon stores, an upgrade keeps DRAM and what was configured, removing
// keeps what is stored.
func TestPackages(t *testing.T) {
	t.Parallel()
	p := makePackages(t)
	for name, run := range map[string]func(*testing.T, packages){"deb": testDeb, "rpm": testRPM, "systemd": testSystemd} {
		if *packagers == "all" || *packagers == name {
			t.Run(name, func(t *testing.T) { run(t, p) })
		}
	}
}

const payloadInRoot = "kv of a prompt."

// promptInRoot is a prompt of one chunk.
var promptInRoot = strings.Repeat("t", 256)

// put stores one chunk.
func (r *freshRoot) put() {
	r.t.Helper()
	put := r.command("root", "kvstored", "put", "--text", promptInRoot)
	put.Stdin = strings.NewReader(payloadInRoot)
	if out, err := put.CombinedOutput(); err != nil {
		r.t.Fatalf("put: %v\n%s", err, out)
	}
}

// wantKept fails where the chunk of put is not in DRAM, right.
func (r *freshRoot) wantKept(after string) {
	r.t.Helper()
	if n := r.inDRAM(); n != 1 {
		r.t.Errorf("after %s DRAM has %d chunks, not the one that was put", after, n)
	}
	r.run("kvstored", "get", "--text", promptInRoot, "-o", "/tmp/got")
	if got := r.run("cat", "/tmp/got"); got != payloadInRoot {
		r.t.Errorf("after %s get returns %q", after, got)
	}
}

// inDRAM is how many chunks DRAM has.
func (r *freshRoot) inDRAM() int {
	r.t.Helper()
	var st daemon.Stats
	if err := json.Unmarshal([]byte(r.stats()), &st); err != nil {
		r.t.Fatal(err)
	}
	return int(st.Store.Tiers["cpu"].Entries)
}

// life has the packaged daemon store, and keep DRAM over an upgrade.
func (r *freshRoot) life(upgrade func()) {
	r.t.Helper()
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
	stopKeeping := r.keeper()
	stop := r.daemon()
	r.put()
	stop()
	upgrade()
	if got := r.run("id", "kvstored"); got != user {
		r.t.Errorf("after the upgrade the user is %s, was %s", got, user)
	}
	if !strings.HasSuffix(r.run("cat", "/etc/kvstored/kvstored.yaml"), "# edited\n") {
		r.t.Error("the upgrade has replaced the configuration")
	}
	stop = r.daemon()
	r.wantKept("the upgrade")
	stop()
	stopKeeping()
}

// wantGone fails where the program is there.
func (r *freshRoot) wantGone() {
	r.t.Helper()
	if out, err := r.command("root", "test", "-e", "/usr/bin/kvstored").CombinedOutput(); err == nil {
		r.t.Errorf("after removing the program is there %s", out)
	}
	r.run("test", "-d", "/var/lib/kvstored/.")
}

// wantPurged fails where anything is left.
func (r *freshRoot) wantPurged() {
	r.t.Helper()
	if left := r.left(); len(left) > 0 {
		r.t.Errorf("after purging there are %v", left)
	}
	if strings.Contains(r.run("cat", "/etc/passwd", "/etc/group"), "kvstored") {
		r.t.Error("after purging the user is there")
	}
}

// testDeb leaves the triggers of other packages out: man-db would read all pages of
// this machine.
func testDeb(t *testing.T, p packages) {
	need.Program(t, "dpkg", "dpkg")
	r := newRoot(t)
	older, newer := r.bring(p.older["deb"]), r.bring(p.newer["deb"])
	r.run("dpkg", "--no-triggers", "-i", older)
	r.life(func() {
		r.run("dpkg", "--no-triggers", "-i", newer)
		if got := r.run("dpkg-query", "-W", "-f", "${Version}", "kvstored"); got != "0.1.1" {
			t.Errorf("after the upgrade the version is %s", got)
		}
	})
	router := r.bring(p.router["deb"])
	r.run("dpkg", "--no-triggers", "-i", router)
	if out, err := r.command("root", "/usr/bin/kvstored-router", "serve", "--config", "/etc/kvstored/router.yaml").CombinedOutput(); err == nil || !strings.Contains(string(out), "route.models is empty") {
		t.Errorf("a router without models: %v, %s", err, out)
	}
	r.run("dpkg", "--no-triggers", "--purge", "kvstored-router")
	r.run("sh", "-c", "! test -e /etc/kvstored/router.yaml && test -f /etc/kvstored/kvstored.yaml && id kvstored")
	lab := r.bring(p.lab["deb"])
	r.run("dpkg", "--no-triggers", "-i", lab)
	if out, err := r.command("root", "/usr/bin/kvstored", "lab", "replay", "--help").CombinedOutput(); err != nil || !strings.Contains(string(out), "kvstored-lab replay --trace") {
		t.Errorf("the lab: %v, %s", err, out)
	}
	r.run("dpkg", "--no-triggers", "--purge", "kvstored-lab")
	r.run("dpkg", "--no-triggers", "-r", "kvstored")
	r.wantGone()
	r.run("test", "-f", "/etc/kvstored/kvstored.yaml")
	r.run("dpkg", "--no-triggers", "--purge", "kvstored")
	r.run("rm", older, newer, router, lab)
	r.wantPurged()
}

// testRPM has a database of its own, in which nothing else is installed. What rpm has no
// word for, purging, is left.
func testRPM(t *testing.T, p packages) {
	need.Program(t, "rpm", "rpm")
	r := newRoot(t)
	older, newer := r.bring(p.older["rpm"]), r.bring(p.newer["rpm"])
	rpm := []string{"rpm", "--dbpath", "/tmp/rpm", "--nodeps"}
	if strings.Contains(r.run("rpm", "--help"), "--force-debian") {
		rpm = append(rpm, "--force-debian")
	}
	r.run("rpm", "--dbpath", "/tmp/rpm", "--initdb")
	r.run("rpm", "--dbpath", "/tmp/rpm", "-K", "--nosignature", older)
	r.run(append(slices.Clone(rpm), "-i", older)...)
	r.life(func() {
		r.run(append(slices.Clone(rpm), "-U", newer)...)
		if got := r.run("rpm", "--dbpath", "/tmp/rpm", "-q", "--qf", "%{VERSION} %{BUILDHOST}", "kvstored"); got != "0.1.1 localhost" {
			t.Errorf("after the upgrade the version and the host that built it are %s", got)
		}
	})
	r.run(append(slices.Clone(rpm), "-e", "kvstored")...)
	r.wantGone()
	r.run("test", "-f", "/etc/kvstored/kvstored.yaml.rpmsave") // it was edited
	r.run("id", "kvstored")
	if out, err := r.command("root", "test", "-e", "/usr/lib/systemd/system/kvstored.service").CombinedOutput(); err == nil {
		t.Errorf("after removing the unit is there %s", out)
	}
}

// testSystemd has the unit of the package run under systemd, which keeps DRAM over
// restarts, upgrades and kills, and gives it back at a stop.
func testSystemd(t *testing.T, p packages) {
	for program, from := range map[string]string{"dpkg": "dpkg", "unshare": "util-linux", "nsenter": "util-linux", "systemctl": "systemd"} {
		need.Program(t, program, from)
	}
	r := newRoot(t)
	older, newer := r.bring(p.older["deb"]), r.bring(p.newer["deb"])
	r.boot()
	r.run("dpkg", "--no-triggers", "-i", older)
	r.run("systemd-analyze", "verify", "/usr/lib/systemd/system/kvstored.service")
	settings := strings.Join(append(slices.Clone(inRoot), "KVSTORED_DISK__CAPACITY=0"), "\n")
	if err := os.WriteFile(filepath.Join(r.dir, "etc/default/kvstored"), []byte(settings), 0o644); err != nil {
		t.Fatal(err)
	}
	r.run("systemctl", "enable", "--now", "kvstored")
	pid := r.awaitUnit("")
	r.put()
	for _, again := range [][]string{
		{"systemctl", "restart", "kvstored"},
		{"dpkg", "--no-triggers", "-i", newer},
		{"systemctl", "kill", "-s", "KILL", "--kill-whom=main", "kvstored"},
		{"systemctl", "kill", "-s", "KILL", "kvstored"},
		{"systemctl", "kill", "-s", "ABRT", "--kill-whom=main", "kvstored"},
	} {
		r.run(again...)
		pid = r.awaitUnit(pid)
		r.wantKept(strings.Join(again, " "))
		if got := r.unit("NFileDescriptorStore"); got != "5" { // arena twice, manifest, two sockets
			t.Errorf("after %v systemd keeps %s descriptors", again, got)
		}
	}
	r.run("systemctl", "stop", "kvstored")
	if got := r.unit("NFileDescriptorStore"); got != "0" {
		t.Errorf("after a stop systemd keeps %s descriptors", got)
	}
	r.run("systemctl", "start", "kvstored")
	r.awaitUnit(pid)
	if n := r.inDRAM(); n != 0 {
		t.Errorf("after a stop DRAM has %d chunks", n)
	}
	r.run("dpkg", "--no-triggers", "-r", "kvstored")
	r.wantGone()
	if got := r.run("systemctl", "list-units", "--all", "--plain", "--no-legend", "kvstored*"); got != "" {
		t.Errorf("after removing systemd knows %s", got)
	}
	r.run("dpkg", "--no-triggers", "--purge", "kvstored")
	r.run("rm", older, newer)
	r.wantPurged()
}

// unit is a property of the daemon's unit.
func (r *freshRoot) unit(property string) string {
	return strings.TrimSpace(r.run("systemctl", "show", "kvstored", "--value", "-p", property))
}

// awaitUnit waits until the daemon of the unit answers, and is another process than pid.
func (r *freshRoot) awaitUnit(pid string) string {
	r.t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		now := r.unit("MainPID")
		if now != "0" && now != pid && r.stats() != "" && r.unit("MainPID") == now {
			return now
		}
		if time.Now().After(deadline) {
			out, _ := r.command("root", "systemctl", "status", "--no-pager", "kvstored").CombinedOutput()
			r.t.Fatalf("the unit does not serve: %s", out)
		}
	}
}
