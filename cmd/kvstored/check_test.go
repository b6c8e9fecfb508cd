package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rs/zerolog"
	"github.com/zeebo/xxh3"
	"golang.org/x/sys/unix"

	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/internal/daemon"
	"github.com/kvstored/kvstored/internal/fdstore"
	"github.com/kvstored/kvstored/internal/socket"
)

// TestCheckAgreesWithServe: what keeps serve from starting here check refuses,
// with the same words, and what serve starts with it accepts. The machine is
// left as it was.
func TestCheckAgreesWithServe(t *testing.T) {
	other := serveHere(t, func(cfg *config.Config) {
		cfg.Listen.RESP = []string{filepath.Join(filepath.Dir(cfg.Listen.Socket), "resp.sock")}
	})
	occupied, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer occupied.Close()
	port := occupied.Addr().String()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	free.Close()
	file := write(t, "precious")
	for what, tt := range map[string]struct {
		change func(cfg *config.Config, dir string)
		want   string // "" = it starts
	}{
		"nothing":                {func(*config.Config, string) {}, ""},
		"a stale socket":         {func(c *config.Config, _ string) { stale(t, c.Listen.Socket) }, ""},
		"a password":             {func(c *config.Config, _ string) { c.Listen.RESPPasswordFile = file }, ""},
		"no folder for sockets":  {func(c *config.Config, dir string) { c.Listen.Socket = dir + "/no/s" }, "/no, or choose"},
		"a file for a folder":    {func(c *config.Config, _ string) { c.Listen.Socket = file + "/s" }, "not a directory: choose another path"},
		"a socket in use":        {func(c *config.Config, _ string) { c.Listen.Socket = other.socket }, "another process is serving this socket"},
		"a front end's in use":   {func(c *config.Config, _ string) { c.Listen.RESP = []string{filepath.Dir(other.socket) + "/resp.sock"} }, "listen.resp: "},
		"a file as socket":       {func(c *config.Config, _ string) { c.Listen.Socket = file }, "not a socket"},
		"an admin.socket in use": {func(c *config.Config, _ string) { c.Admin.Socket = config.AdminSocketOf(other.socket) }, "admin.socket: "},
		"a file as admin.socket": {func(c *config.Config, _ string) { c.Admin.Socket = file }, "admin.socket: "},
		"no folder for admins":   {func(c *config.Config, dir string) { c.Admin.Socket = dir + "/no/s" }, "admin.socket: "},
		"a stale admin.socket":   {func(c *config.Config, _ string) { stale(t, c.AdminSocket()) }, ""},
		"no such admin.group":    {func(c *config.Config, _ string) { c.Admin.Group = "no-such-group" }, "admin.socket: "},
		"a port in use":          {func(c *config.Config, _ string) { c.Admin.Listen = port }, "admin.listen: "},
		"a front end's port":     {func(c *config.Config, _ string) { c.Listen.RESP = []string{port} }, "listen.resp: "},
		"a port twice": {func(c *config.Config, _ string) {
			c.Listen.RESP = []string{free.Addr().String(), strings.Replace(free.Addr().String(), "127.0.0.1", "localhost", 1)}
		}, "address already in use"},
		"no such group":       {func(c *config.Config, _ string) { c.Listen.Group = "no-such-group" }, "no-such-group"},
		"no password file":    {func(c *config.Config, dir string) { c.Listen.RESPPasswordFile = dir + "/none" }, "listen.resp_password_file: "},
		"no password":         {func(c *config.Config, _ string) { c.Listen.RESPPasswordFile = write(t, "\nsecret") }, "is empty"},
		"no readable file":    {func(c *config.Config, dir string) { c.Listen.RESPPasswordFile = dir }, "listen.resp_password_file: "},
		"a folder not to be":  {func(c *config.Config, _ string) { onDisk(c, file+"/disk") }, "not a directory"},
		"a folder in use":     {func(c *config.Config, _ string) { onDisk(c, held(t)) }, "in use by another process"},
		"a folder of others'": {func(c *config.Config, _ string) { onDisk(c, foreign(t)) }, "name the folder of the database first"},
	} {
		t.Run(what, func(t *testing.T) {
			cfg := smallConfig(t, func(c *config.Config) { c.Admin.Listen = "127.0.0.1:0" })
			dir := filepath.Dir(cfg.Listen.Socket)
			tt.change(&cfg, dir)
			config := fileOf(t, &cfg)

			before := listing(t, dir)
			code, _, says := kvstored(t, "", "check", config)
			if after := listing(t, dir); after != before {
				t.Errorf("check left %s where there was %s", after, before)
			}
			if code, _, says := kvstored(t, "", "check", "--file-only", config); code != exitOK || says != "" {
				t.Errorf("check --file-only: exit code %d, %s", code, says)
			}
			if tt.want == "" {
				d, err := daemon.New(cfg, daemon.Options{})
				if code != exitOK || says != "" || err != nil {
					t.Errorf("check: exit code %d, %s; serve: %v", code, says, err)
				}
				if err == nil {
					d.Close()
				}
				return
			}
			if code != exitFailure || !strings.Contains(says, tt.want) {
				t.Errorf("check: exit code %d, %s; want %q", code, says, tt.want)
			}
			if !cfg.Disk.Enabled() { // that disk.Open and disk.Check agree is tested there, without a process
				fails(t, exitFailure, tt.want, "serve", "--config", config)
			}
		})
	}
}

// onDisk has a configuration want a disk tier in a folder, whose speed check does not measure.
func onDisk(c *config.Config, dir string) {
	c.Disk.Paths, c.Disk.Capacity, c.Disk.MinFree = []string{dir}, 256<<20, 0
	c.Write.Mode = config.WriteThrough
}

// held is a folder that somebody has.
func held(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	f, err := os.Create(filepath.Join(dir, "kvstored.lock"))
	if err == nil {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return dir
}

// stale leaves a socket without a daemon.
func stale(t *testing.T, path string) {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
}

// foreign is a folder that looks like a path of another set.
func foreign(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	marker := fmt.Sprintf("kvstored-disk 2\nset abc\npath 2\nsecret %064x\nepoch 1\n", 0)
	marker += fmt.Sprintf("sum %016x\n", xxh3.HashString(marker))
	if err := os.WriteFile(filepath.Join(dir, "kvstored.format"), []byte(marker), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// listing names everything below a folder.
func listing(t *testing.T, dir string) string {
	t.Helper()
	var all []string
	err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		all = append(all, path)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(all, "\n")
}

// All that is wrong is told at once, and where to go from there.
func TestCheckTellsAll(t *testing.T) {
	dir := t.TempDir()
	path := write(t, "listen: {socket: "+dir+"/no/s, resp: ["+dir+"/nor/r], resp_password_file: "+dir+"/password}\nadmin: {listen: \"\"}\ndisk: {paths: ["+write(t, "")+"]}\n")
	code, out, says := kvstored(t, "", "check", path)
	if code != exitFailure || !strings.Contains(out, "# DRAM") {
		t.Errorf("exit code %d:\n%s", code, out)
	}
	for _, want := range []string{"kvstored: listen.socket: ", "kvstored: listen.resp: ", "kvstored: listen.resp_password_file: ", "kvstored: disk: ", "\nserve would not start here."} {
		if !strings.Contains(says, want) {
			t.Errorf("check does not say %q:\n%s", want, says)
		}
	}
}

// A folder that the socket lacks ends a start, though the same error of a disk
// would not.
func TestCheckTellsWhatEndsAStart(t *testing.T) {
	path := write(t, "listen: {socket: "+t.TempDir()+"/no/s}\nadmin: {listen: \"\"}\ndisk: {capacity: 0}\n")
	code, _, says := kvstored(t, "", "check", path)
	if code != exitFailure || !strings.Contains(says, "no such file or directory") || !strings.Contains(says, "\nserve would not start here.") {
		t.Errorf("exit code %d:\n%s", code, says)
	}
}

// A setting that is merely unwise is a warning, of check and in the log, here of a serve that
// fails for another reason.
func TestWarnings(t *testing.T) {
	cfg := smallConfig(t, func(c *config.Config) {
		c.Remote.S3.Endpoint = "http://127.0.0.1:1"
		c.Listen.AllowUIDs = []uint32{12345}
		c.Listen.RESP = []string{"127.0.0.1:0", filepath.Join(filepath.Dir(c.Listen.Socket), "resp.sock")}
		c.Listen.AdminUIDs = []uint32{0, 12345}
		c.Spaces = []config.Space{{Match: "[a-z]*", Quota: 64 << 20, PrefillDepth: 1}}
		onDisk(c, c.Listen.Socket+".disk")
		c.Disk.Policy = "lfu"
		c.Listen.Socket += "/no/s"
	})
	file := fileOf(t, &cfg)
	t.Setenv("KVSTORED_SERVICE_HOST", "10.0.0.1") // as Kubernetes sets it
	t.Setenv("KVSTORED_LLAMA", "/x")
	code, out, says := kvstored(t, "", "check", "--file-only", file)
	if code != exitOK {
		t.Errorf("exit code %d:\n%s", code, out)
	}
	code, _, log := kvstored(t, "", "serve", "--config", file)
	if code != exitFailure {
		t.Errorf("serve: exit code %d:\n%s", code, log)
	}
	for _, want := range []string{"no settings, and passed over: KVSTORED_LLAMA, KVSTORED_SERVICE_HOST", "without remote.s3.bucket", "and 127.0.0.1:0 asks for no password", "spaces[0].match: only * and ? stand for", "users 12345 have the right admin, but admin.mode 0600 admits only root",
		"spaces[0].prefill_depth has no effect without the policy tenure"} {
		if !strings.Contains(says, "kvstored: warning: ") || !strings.Contains(says, want) || !strings.Contains(log, want) {
			t.Errorf("no warning %q in\n%s\nor in\n%s", want, says, log)
		}
	}
	if strings.Contains(says, "resp.sock") {
		t.Errorf("a warning about a socket:\n%s", says)
	}
}

// Beside rules of access an arena that is kept is a warning: it has no seal against root.
func TestWarnsOfKeepBesideRules(t *testing.T) {
	for _, keep := range []bool{false, true} {
		cfg := smallConfig(t, func(c *config.Config) {
			c.CPU.Keep = keep
			c.Access = []config.Access{{UIDs: []uint32{12345}, Match: "*", Rights: []string{config.RightRead}}}
		})
		code, _, says := kvstored(t, "", "check", "--file-only", fileOf(t, &cfg))
		if code != exitOK || strings.Contains(says, "an engine that runs as root could write") != keep {
			t.Errorf("keep %t: exit code %d: %s", keep, code, says)
		}
	}
}

// A keeper holds the sockets of a daemon that has ended: they are not in the way of the
// next one, and check leaves them there.
func TestCheckBesideAKeeper(t *testing.T) {
	cfg := smallConfig(t, func(c *config.Config) {
		c.CPU.Keep, c.Admin.Listen = true, "127.0.0.1:0"
		c.Listen.RESP = []string{filepath.Join(filepath.Dir(c.Listen.Socket), "resp.sock")}
	})
	file := fileOf(t, &cfg)
	plain := func(out string) string { // without its line breaks
		return strings.Join(strings.Fields(strings.ReplaceAll(out, "#", "")), " ")
	}
	if out := plain(must(t, "", "check", file)); !strings.Contains(out, "no keeper listens at "+cfg.KeeperSocket()) {
		t.Errorf("without a keeper:\n%s", out)
	}
	l, err := socket.Listen(cfg.KeeperSocket(), 0o600, "")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- (&fdstore.Server{Log: zerolog.Nop()}).Serve(ctx, l) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	d := serveHere(t, func(c *config.Config) { *c = cfg })
	if code, out, says := kvstored(t, "", "check", file); code != exitFailure || !strings.Contains(says, "another process") || !strings.Contains(plain(out), "still runs") {
		t.Errorf("beside the daemon: exit code %d, %s\n%s", code, says, out)
	}
	d.end(t)
	for range 2 {
		if out := plain(must(t, "", "check", file)); !strings.Contains(out, "has 16 MiB and 4 sockets for the next start") {
			t.Errorf("beside the keeper:\n%s", out)
		}
	}
	cfg.CPU.Keep = false // the next start lets them go
	must(t, "", "check", fileOf(t, &cfg))
}
