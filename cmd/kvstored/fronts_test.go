package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/config"
)

// tool skips the test where a program is not installed, but not in CI.
func tool(t *testing.T, name string, probe ...string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err == nil && len(probe) > 0 {
		err = exec.Command(path, probe...).Run()
	}
	if err != nil && os.Getenv("CI") == "true" {
		t.Fatalf("%s %v: %v; install redis-tools and python3-redis", name, probe, err)
	}
	if err != nil {
		t.Skipf("%s %v: %v; redis-tools and python3-redis bring it", name, probe, err)
	}
	return path
}

// startFronts runs a daemon with a Redis front end on a socket and on TCP.
func startFronts(t *testing.T) (d *demoDaemon, socket, port string) {
	t.Helper()
	d = startDaemonWith(t, func(cfg *config.Config) {
		dir := filepath.Dir(cfg.Listen.Socket)
		socket = filepath.Join(dir, "resp.sock")
		cfg.Listen.RESP = []string{socket, "127.0.0.1:0"}
		cfg.Listen.RESPPasswordFile = filepath.Join(dir, "password")
		cfg.CPU.Capacity = 256 << 20
		if err := os.WriteFile(cfg.Listen.RESPPasswordFile, []byte("secret\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	})
	return d, socket, loggedPort(t, d)
}

// A client that was given the wrong socket hears so, and does not wait.
func TestClientOfRedisSocket(t *testing.T) {
	_, socket, _ := startFronts(t)
	_, err := client.Dial(t.Context(), socket, client.Options{})
	if !errors.Is(err, client.ErrBadRequest) || !strings.Contains(err.Error(), "listen.socket") {
		t.Error(err)
	}
}

// loggedPort waits for the TCP port in the daemon's log.
func loggedPort(t *testing.T, d *demoDaemon) string {
	t.Helper()
	for end := time.Now().Add(demoStartTimeout); ; time.Sleep(demoStartPoll) {
		log, err := os.ReadFile(d.log)
		if err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(string(log), "127.0.0.1:")
		if port := rest[:len(rest)-len(strings.TrimLeft(rest, "0123456789"))]; port != "" && len(port) < len(rest) {
			return port
		}
		if time.Now().After(end) {
			t.Fatalf("the log names no port:\n%s", log)
		}
	}
}

// redisPy stores and reads through redis-py; "check" only reads.
const redisPy = `
import sys, redis
where, mode = sys.argv[1], sys.argv[2]
r = redis.Redis(unix_socket_path=where) if where.startswith("/") else redis.Redis(port=int(where), password="secret")
big = bytes(range(256)) * 16384
if mode == "store":
    assert r.ping()
    assert r.get("none") is None
    assert r.set("kv", big) and r.set("meta", b"", ex=1000)
    assert not r.set("kv", b"x", nx=True)
    assert r.mset({"a": b"1", "b": b"2"}) and r.mget("a", "none", "b") == [b"1", None, b"2"]
    assert r.delete("a", "b", "none") == 2
    assert sorted(r.scan_iter()) == [b"kv", b"meta"] and r.dbsize() == 2
    p = r.pipeline(transaction=False)
    for i in range(10000):
        p.exists("kv")
    assert p.execute() == [1] * 10000
    try:
        r.flushdb()
        raise AssertionError("flushed")
    except redis.ResponseError:
        pass
assert r.get("kv") == big and r.get("meta") == b"" and 900 < r.ttl("meta") <= 1000
`

// pythonWithRedis prefers the first python3 in the path, but the system's has
// the system's packages.
func pythonWithRedis() string {
	const system = "/usr/bin/python3"
	if exec.Command("python3", "-c", "import redis").Run() != nil && exec.Command(system, "-c", "import redis").Run() == nil {
		return system
	}
	return "python3"
}

func TestRedisPy(t *testing.T) {
	python := tool(t, pythonWithRedis(), "-c", "import redis")
	d, socket, port := startFronts(t)
	run := func(where, mode string) {
		t.Helper()
		if out, err := exec.Command(python, "-c", redisPy, where, mode).CombinedOutput(); err != nil {
			t.Fatalf("%s %s: %v\n%s", where, mode, err, out)
		}
	}
	run(socket, "store")
	run(port, "store")
	if err := d.stop(t.Context()); err != nil { // values survive it
		t.Fatal(err)
	}
	if _, err := d.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	run(socket, "check")
}

func TestRedisTools(t *testing.T) {
	cli, benchmark := tool(t, "redis-cli"), tool(t, "redis-benchmark")
	d, socket, port := startFronts(t)
	for _, where := range [][]string{{"-s", socket}, {"-p", port, "-a", "secret"}} {
		run := func(program string, args ...string) string {
			t.Helper()
			out, err := exec.Command(program, append(where, args...)...).CombinedOutput()
			if err != nil {
				t.Fatalf("%s %v: %v\n%s", program, args, err, out)
			}
			return string(out)
		}
		if out := run(cli, "set", "a", "b"); !strings.Contains(out, "OK") {
			t.Errorf("redis-cli set: %s", out)
		}
		if out := run(cli, "--scan"); !strings.Contains(out, "a\n") {
			t.Errorf("redis-cli --scan: %s", out)
		}
		if out := run(cli, "info"); !strings.Contains(out, "role:master") {
			t.Errorf("redis-cli info: %s", out)
		}
		out := run(benchmark, "-t", "set,get", "-d", "1048576", "-P", "16", "-c", "4", "-n", "400", "-q")
		if strings.Count(out, "requests per second") != 2 || strings.Contains(out, "Error") {
			t.Errorf("redis-benchmark: %s", out)
		}
	}
	if _, out, _ := kvstored(t, "", "stats", "--socket", d.socket); !strings.Contains(out, "Redis clients") {
		t.Errorf("stats says nothing of Redis clients:\n%s", out)
	}
}
