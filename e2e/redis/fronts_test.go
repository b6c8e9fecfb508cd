package redis_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/e2e/daemon"
	"github.com/kvstored/kvstored/e2e/need"
)

// view is what of the daemon's statistics these tests look at.
type view struct {
	Store struct {
		Tiers map[string]daemon.Tier `json:"tiers"`
	} `json:"store"`
	RESP struct {
		Connections int64             `json:"connections"`
		Errors      uint64            `json:"errors"`
		Malformed   uint64            `json:"malformed"`
		Hits        uint64            `json:"hits"`
		Stored      uint64            `json:"stored"`
		Dropped     map[string]uint64 `json:"dropped"`
		Owed        int64             `json:"owed"`
		HungUp      uint64            `json:"hung_up"`
	} `json:"resp"`
}

// stats asks a daemon that runs.
func stats(t *testing.T, d *daemon.Daemon) (v view) {
	t.Helper()
	if err := d.AskInto(t.Context(), &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// startFronts runs a daemon with a Redis front end on a socket and on TCP.
func startFronts(t *testing.T) (d *daemon.Daemon, socket, port string) {
	t.Helper()
	d = daemon.Start(t, func(cfg *config.Config) {
		dir := filepath.Dir(cfg.Listen.Socket)
		socket = filepath.Join(dir, "resp.sock")
		cfg.Listen.RESP = []string{socket, "127.0.0.1:0"}
		cfg.Listen.RESPPasswordFile = filepath.Join(dir, "password")
		cfg.CPU.Capacity, cfg.Prefetch.Deadline = 256<<20, time.Minute // in which a value is read of a slow disk
		if err := os.WriteFile(cfg.Listen.RESPPasswordFile, []byte("secret\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	})
	return d, socket, loggedPort(d)
}

// A client that was given the wrong socket hears so, and does not wait.
func TestClientOfRedisSocket(t *testing.T) {
	_, socket, _ := startFronts(t)
	_, err := client.Dial(t.Context(), socket, client.Options{})
	if !errors.Is(err, client.ErrBadRequest) || !strings.Contains(err.Error(), "listen.socket") {
		t.Error(err)
	}
}

// And so does a Redis client that was given the daemon's own.
func TestRedisClientOfOwnSocket(t *testing.T) {
	cli := need.Program(t, "redis-cli", "redis-tools")
	d := daemon.Start(t)
	if out, err := exec.Command(cli, "-s", d.Socket, "ping").CombinedOutput(); !strings.Contains(string(out), "Redis clients belong to listen.resp") {
		t.Errorf("%v, %s", err, out)
	}
}

// loggedPort waits for the TCP port in the daemon's log; 0 is the setting.
func loggedPort(d *daemon.Daemon) string {
	const address = `127\.0\.0\.1:([1-9]\d*)\D`
	return regexp.MustCompile(address).FindStringSubmatch(d.AwaitSaid(address))[1]
}

// redisPy stores and reads through redis-py; "check" only reads.
const redisPy = `
import sys, redis
where, mode = sys.argv[1], sys.argv[2]
unix = where.startswith("/")
r = redis.Redis(unix_socket_path=where) if unix else redis.Redis(port=int(where), password="secret", client_name="me")
big = bytes(range(256)) * 16384
if mode == "store":
    assert r.ping()
    assert r.get("none") is None
    assert r.set("kv", big) and r.set("meta", b"", ex=1000)
    assert not r.set("kv", b"x", nx=True)
    assert r.mset({"a": b"1", "b": b"2"}) and r.mget("a", "none", "b") == [b"1", None, b"2"]
    assert r.exists("a", "b", "none", "a") == 3 and r.strlen("b") == 1
    assert r.ttl("a") == -1 and r.ttl("none") == -2 and not r.set("d", b"4", xx=True)
    assert r.set("d", b"4", px=100000) and 99 <= r.ttl("d") <= 100 and r.delete("c", "d") == 1
    assert r.setex("d", 100, b"4") and 99 <= r.ttl("d") <= 100 and r.get("d") == b"4" and r.delete("d") == 1
    assert r.client_id() > 0 and r.command_count() == 19
    assert unix or r.client_getname() == "me"
    assert r.info()["role"] == "master"
    memory = r.info("memory")
    assert len(big) < memory["used_memory"] < memory["maxmemory"] == 256 << 20 and memory["maxmemory_policy"] == "lru"
    assert r.delete("a", "b", "none") == 2
    assert r.exists("kv", "meta") == 2
    p = r.pipeline(transaction=False)
    for i in range(10000):
        p.exists("kv")
    assert p.execute() == [1] * 10000
    def refused(error, ask):
        try:
            ask()
        except error:
            return
        raise AssertionError("not refused")
    refused(redis.ResponseError, r.flushdb) # as every command that clients of large values do not send
    refused(redis.ResponseError, lambda: r.set("huge", bytes(65 << 20)))
    if unix and redis.__version__ < "5": # which has not said HELLO or CLIENT; later versions do by themselves
        fresh = redis.Redis(unix_socket_path=where)
        assert fresh.set("huge", bytes(65 << 20)) and fresh.get("huge") is None and not fresh.exists("huge")
    p = r.pipeline(transaction=False)
    p.get("none").set("kv", big).lpush("kv", 1).get("kv").set("huge", bytes(65 << 20)).exists("kv", "huge")
    got = p.execute(raise_on_error=False)
    assert got[:2] == [None, True] and got[3] == big and got[5] == 1
    assert isinstance(got[2], redis.ResponseError) and isinstance(got[4], redis.ResponseError)
    p = r.pipeline() # a transaction
    p.set("tx", big).get("tx").set("ty", b"2", ex=100).ttl("ty").mget("tx", "none").delete("tx", "ty").get("tx")
    got = p.execute()
    assert got[:3] == [True, big, True] and 90 < got[3] <= 100 and got[4:] == [[big, None], 2, None]
    p.lpush("tx", 1).set("tx", big)
    refused(redis.ResponseError, p.execute)
    p.set("tx", b"1").getset("tx", b"2").set("huge", bytes(65 << 20))
    refused(redis.ResponseError, p.execute)
    assert r.exists("tx") == 0
    assert r.transaction(lambda p: p.set("tx", b"1")) == [True] and r.delete("tx") == 1
    if not unix:
        refused(redis.AuthenticationError, redis.Redis(port=int(where)).ping)
        refused((redis.AuthenticationError, redis.ResponseError), redis.Redis(port=int(where), password="wrong").ping)
assert r.get("kv") == big and r.get("meta") == b"" and 900 < r.ttl("meta") <= 1000
`

func TestRedisPy(t *testing.T) {
	python := need.Python(t, "redis")
	d, socket, port := startFronts(t)
	run := func(where, mode string) {
		t.Helper()
		if out, err := exec.Command(python, "-c", redisPy, where, mode).CombinedOutput(); err != nil {
			t.Fatalf("%s %s: %v\n%s", where, mode, err, out)
		}
	}
	run(socket, "store")
	run(port, "store")
	d.Stop() // values survive it
	d.Start()
	run(socket, "check")
}

func TestRedisTools(t *testing.T) {
	cli, benchmark := need.Program(t, "redis-cli", "redis-tools"), need.Program(t, "redis-benchmark", "redis-tools")
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
		for _, tt := range []struct{ says, args string }{
			{"OK\n", "set a b"}, {"b\n", "get a"}, {"\n", "get none"}, {"1\n", "exists a none"}, {"-1\n", "ttl a"},
			{"ERR unknown command", "lpush a b"}, {"PONG\n", "ping"},
		} {
			if out := run(cli, strings.Fields(tt.args)...); !strings.Contains("\n"+out, "\n"+tt.says) {
				t.Errorf("redis-cli %s: %s", tt.args, out)
			}
		}
		if out := run(cli, "info"); !strings.Contains(out, "role:master") {
			t.Errorf("redis-cli info: %s", out)
		}
		out := run(benchmark, "-t", "set,get", "-d", "1048576", "-P", "16", "-c", "4", "-n", "400", "-q")
		if strings.Count(out, "requests per second") != 2 || strings.Contains(out, "Error") {
			t.Errorf("redis-benchmark: %s", out)
		}
		const name = "key:__rand_int__" // of all its values
		if out := run(cli, "strlen", name); !strings.Contains("\n"+out, "\n1048576\n") {
			t.Errorf("redis-benchmark stored a value of %s", out)
		}
		run(cli, "del", name)
	}
	if out, err := exec.Command(cli, "-p", port, "get", "a").CombinedOutput(); !strings.Contains(string(out), "NOAUTH Authentication required.") {
		t.Errorf("redis-cli without a password: %v, %s", err, out)
	}
	if of := stats(t, d).RESP; of.Hits < 2*400 || of.Stored < 2*400 || of.Malformed != 0 {
		t.Errorf("stats: %+v; redis-benchmark stored and read 400 values twice", of)
	}
	if out := daemon.Must(t, "", "stats", "--socket", d.Socket); !strings.Contains(out, "Redis clients") {
		t.Errorf("stats says nothing of Redis clients:\n%s", out)
	}
}
