package vllm_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/kvstored/kvstored/e2e/daemon"
	"github.com/kvstored/kvstored/e2e/engines/drive"
)

// resident is what a process has in memory: of its own, and its share of the daemon's arena,
// of which it tells the inode.
func resident(t *testing.T, pid int) (own, arena int, inode string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "smaps"))
	if err != nil {
		t.Fatal(err)
	}
	inside := false
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if strings.Contains(f[0], "-") && len(f) >= 5 { // the head of a mapping
			if inside = strings.Contains(line, "memfd:kvstored-arena"); inside {
				inode = f[4]
			}
			continue
		}
		kib, _ := strconv.Atoi(f[min(1, len(f)-1)])
		switch f[0] {
		case "Pss:":
			if inside {
				arena += kib << 10
			}
		case "Anonymous:":
			own += kib << 10
		}
	}
	return own, arena, inode
}

// TestOneCopy: all KV that the pool has stored and loaded again lies in DRAM once, in the
// daemon's arena, which the engine maps. Its own cache is small, so that it has been all of
// it in use before.
func TestOneCopy(t *testing.T) {
	if !*long {
		t.Skip("it takes minutes: -long")
	}
	python(t)
	d := daemon.Start(t, roomy)
	e := start(t, d.Socket, options{Connector: pool(""), Options: object{"num_gpu_blocks_override": 120, "max_model_len": 2048}})
	r := seeded()
	first, prompts := drive.Random(r, 4, 1500), drive.Random(r, 20, 1500)
	e.generate(first, nil)
	e.stored(d, blocks(first, 32))
	before, _, _ := resident(t, e.PID())
	kv := int(blocks(prompts, 32)) * 128 << 10
	want := e.generate(prompts, nil)
	e.stored(d, blocks(first, 32)+blocks(prompts, 32))
	e.reset()
	g := e.generate(prompts, nil)
	drive.Equal(t, "loaded", g.Answers, want.Answers, false)
	if fromDaemon(g) < total(prompts)*9/10 {
		t.Errorf("of %d tokens came %v", total(prompts), g.Cached)
	}
	after, mine, inode := resident(t, e.PID())
	_, its, same := resident(t, d.Process().Pid)
	t.Logf("%d MiB of KV: the engine's own memory %d MiB more, the arena %d MiB", kv/mib, (after-before)/mib, (mine+its)/mib)
	if inode == "" || inode != same {
		t.Errorf("the engine maps the memory %q, the daemon %q", inode, same)
	}
	if after-before > kv/4 || mine+its < kv || mine+its > 256*mib {
		t.Errorf("%d bytes of KV: the engine has %d bytes more of its own, the arena %d", kv, after-before, mine+its)
	}
}
