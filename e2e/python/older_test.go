package python_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/kvstored/kvstored/e2e/daemon"
	"github.com/kvstored/kvstored/e2e/need"
)

// olderCommit has the Python package that engines' images carry.
const olderCommit = "28dff42a"

// olderModules are tests of that package: of its client, and of a class for each engine.
var olderModules = []string{
	"test_client", "test_writer", "test_vllm", "test_vllm_groups", "test_vllm_hits", "test_sglang", "test_sglang_pools",
	"test_lmcache_groups", "test_lmcache_l2", "test_llama_cache",
}

// olderGone asks for operations that have left the protocol since.
const olderGone = `
import sys, time
import kvstored
from kvstored import Code, Refused, Space, hashes, wire
from kvstored.call import Request
from kvstored.link import Link

space = Space(model="m", dtype="u8", chunk_tokens=4, method="given:test")
with kvstored.Client(sys.argv[1], space=space, timeout=60) as kv:
    assert kv.wait_attached(60)
    prompt, into = hashes(bytes(range(32)), [4, 4]), bytearray(10)
    kv.store(prompt, [5, 5], lambda i, m: m.__setitem__(slice(None), b"bytes"))
    assert kv.read(prompt, into) == 2 and into == b"bytesbytes"
    granted = kv._link.hello.granted
    assert granted == wire.WANT_ARENA | wire.WANT_STAGING | wire.WANT_PUSHES, granted
    wants = wire.WANT_ARENA | wire.WANT_STAGING
    link = Link(sys.argv[1], wire.hello(wants | wire.WANT_DIRECT, "direct"), 60)
    assert link.hello.granted == wants and link.hello.put_mode == 1, link.hello
    link.close()
    assert kv.pin(prompt, "p").chunks == 2
    for gone in (
        lambda: kv._link.call(Request(wire.Op.READ, wire.read([]), wire.plain_reply), time.monotonic() + 60),
        lambda: kv.unpin("p"),
    ):
        try:
            gone()
        except Refused as e:
            assert e.code == Code.UNKNOWN_OP, e
        else:
            raise AssertionError("an operation that has left is answered")
        kv.ping()
`

// TestOlderPackage: the Python package of olderCommit has its client and classes work with
// a daemon of this tree. What has left is not granted, or unknown_op.
func TestOlderPackage(t *testing.T) {
	t.Parallel()
	python, dir := need.Python(t, "numpy"), older(t)
	env := append(os.Environ(), "KVSTORED_BIN="+daemon.Program(t), "PYTHONPATH=.")
	run := func(name string, args ...string) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tests := exec.CommandContext(t.Context(), python, append([]string{"-B"}, args...)...)
			tests.Dir, tests.Env = dir, env
			if out, err := tests.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
		})
	}
	for _, name := range olderModules {
		run(name, "-m", "unittest", "tests."+name)
	}
	run("gone", "-c", olderGone, daemon.Start(t).Socket)
}

// olderUnpins are the lines of those tests that end a pin, of which olderGone has the answer.
var olderUnpins = regexp.MustCompile(`(?m)^ *self\.assertEqual\(self\.kv\.unpin\("p"\), [02]\)\n`)

// older is the folder of the Python client of olderCommit. Its tests start daemons as those
// of this tree do.
func older(t *testing.T) string {
	t.Helper()
	git, dir := need.Program(t, "git", "the package git"), t.TempDir()
	archive, err := exec.Command(git, "-C", daemon.Root(), "archive", olderCommit, "clients/python", "testdata", "docs/engines.md").Output()
	if err != nil {
		t.Skipf("%s is not in this clone (%v): git fetch --unshallow brings it", olderCommit, err)
	}
	unpack := exec.Command(need.Program(t, "tar", "the package tar"), "x", "-C", dir)
	unpack.Stdin = bytes.NewReader(archive)
	if out, err := unpack.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	dir = filepath.Join(dir, "clients", "python")
	starts, err := os.ReadFile(filepath.Join(client(), "tests", "daemon.py"))
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "tests", "daemon.py"), starts, 0o644)
	}
	asks, errs := os.ReadFile(filepath.Join(dir, "tests", "test_client.py"))
	if n := len(olderUnpins.FindAll(asks, -1)); n != 2 {
		t.Fatalf("%d lines end a pin, want 2: %v", n, errs)
	}
	err = errors.Join(err, os.WriteFile(filepath.Join(dir, "tests", "test_client.py"), olderUnpins.ReplaceAll(asks, nil), 0o644))
	if err != nil {
		t.Fatal(err)
	}
	return dir
}
