package lmcache_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/e2e/daemon"
	"github.com/kvstored/kvstored/e2e/engines/drive"
)

const mib = 1 << 20

var lmcache = drive.New("lmcache")

type object = drive.Object

func roomy(cfg *config.Config) {
	cfg.CPU.Capacity, cfg.Disk.Capacity = 256*mib, 4<<30
}

// environment of processes that import LMCache and kvstored: nobody is told of their use.
func environment(socket string) []string {
	return lmcache.Environment(socket, "LMCACHE_TRACK_USAGE=false", "LMCACHE_DISABLE_BANNER=1", "LMCACHE_LOG_LEVEL=WARNING", "PYTHONHASHSEED=0")
}

// adapter is the line of the L2 adapter.
func adapter(more object) object {
	params := object{"chunk_tokens": 256, "lookup_timeout": 30, "transfer_timeout": 60}
	for name, value := range more {
		params[name] = value
	}
	return object{"type": "plugin", "module_path": "kvstored.lmcache_l2", "class_name": "KvstoredL2Adapter", "adapter_params": params}
}

// manager is LMCache's StorageManager in a process of its own.
type manager struct {
	*drive.Process
	t *testing.T
}

func startManager(t *testing.T, socket string, adapter object) *manager {
	t.Helper()
	return &manager{lmcache.Start(t, environment(socket), object{"manager": adapter}), t}
}

// row is the chunks of a prompt for one rank and object group.
type row struct {
	Prompt string `json:"prompt"`
	Chunks int    `json:"chunks"`
	World  int    `json:"world"`
	Rank   int    `json:"rank"`
	Group  int    `json:"group"`
	Window int    `json:"window"` // of chunks; -1: all are needed
	Salt   string `json:"salt,omitempty"`
	Model  string `json:"model,omitempty"`
}

func prompt(name string, chunks int) row {
	return row{Prompt: name, Chunks: chunks, World: 1, Window: -1}
}

func (r row) of(world, rank int) row {
	r.World, r.Rank = world, rank
	return r
}

func (r row) windowed(chunks int) row {
	r.Group, r.Window = 1, chunks
	return r
}

// got is what a request has.
type got struct {
	Bits       []string // of each row, a bit for each chunk
	Own, Below int      // chunks from the server's memory, and from the adapter
	Wrong      int      // other bytes
}

func (g got) hits() (n int) { return strings.Count(strings.Join(g.Bits, ""), "1") }

// has says whether each chunk that another request has is there.
func (g got) has(other got) bool {
	if len(g.Bits) != len(other.Bits) {
		return false
	}
	for r, row := range other.Bits {
		for i := range row {
			if row[i] == '1' && (i >= len(g.Bits[r]) || g.Bits[r][i] != '1') {
				return false
			}
		}
	}
	return true
}

func (m *manager) do(what string, r row, at []int) {
	m.t.Helper()
	m.Ask(object{"do": what, "row": r, "at": at}, nil)
}

// stored stores chunks, and the server's memory forgets them.
func (m *manager) stored(r row, at []int) {
	m.t.Helper()
	m.do("put", r, at)
	m.do("drop", r, at)
}

// own stores chunks that the server's memory alone keeps.
func (m *manager) own(r row, at []int) {
	m.t.Helper()
	m.do("put", r, at)
	m.do("forget", r, at)
}

func (m *manager) get(policy string, rows ...row) (g got) {
	m.t.Helper()
	m.Ask(object{"do": "get", "rows": rows, "policy": policy}, &g)
	if g.Wrong > 0 {
		m.t.Errorf("%d chunks have other bytes", g.Wrong)
	}
	return g
}

// upTo are the numbers below n but for some.
func upTo(n int, but ...int) (at []int) {
	for i := range n {
		if !slices.Contains(but, i) {
			at = append(at, i)
		}
	}
	return at
}

// scenarios are what a request finds in the two memories, by name.
var scenarios = map[string]func(m *manager, name string) got{
	"all are below": func(m *manager, name string) got {
		p := prompt(name, 12)
		m.stored(p, upTo(12))
		return m.get("prefix", p)
	},
	"the first is in the server's memory": func(m *manager, name string) got {
		p := prompt(name, 8)
		m.stored(p, upTo(8, 0))
		m.own(p, []int{0})
		return m.get("prefix", p)
	},
	"two in the middle are in the server's memory": func(m *manager, name string) got {
		p := prompt(name, 8)
		m.do("put", p, upTo(8))
		m.do("drop", p, upTo(8, 3, 4))
		m.do("forget", p, []int{3, 4})
		return m.get("prefix", p)
	},
	"full, two are missing": func(m *manager, name string) got {
		p := prompt(name, 12)
		m.stored(p, upTo(12, 3, 7))
		return m.get("full", p)
	},
	"full, the first is missing": func(m *manager, name string) got {
		p := prompt(name, 12)
		m.stored(p, upTo(12, 0))
		return m.get("full", p)
	},
	"full, three that were stored one by one": func(m *manager, name string) got {
		p := prompt(name, 12)
		for _, i := range []int{5, 2, 9} {
			m.stored(p, []int{i})
		}
		return m.get("full", p)
	},
	"two ranks": func(m *manager, name string) got {
		a, b := prompt(name, 8).of(2, 0), prompt(name, 8).of(2, 1)
		m.stored(a, upTo(8))
		m.stored(b, upTo(8))
		return m.get("prefix", a, b)
	},
	"two ranks, one lacks a chunk": func(m *manager, name string) got {
		a, b := prompt(name, 8).of(2, 0), prompt(name, 8).of(2, 1)
		m.stored(a, upTo(8))
		m.stored(b, upTo(8, 4))
		return m.get("prefix", a, b)
	},
	"full, two ranks, one lacks a chunk": func(m *manager, name string) got {
		a, b := prompt(name, 8).of(2, 0), prompt(name, 8).of(2, 1)
		m.stored(a, upTo(8))
		m.stored(b, upTo(8, 4))
		return m.get("full", a, b)
	},
	"a window": func(m *manager, name string) got {
		full, window := prompt(name, 10), prompt(name, 10).windowed(2)
		m.stored(full, upTo(10))
		m.stored(window, upTo(10))
		return m.get("prefix", full, window)
	},
	"a window that has its ends": func(m *manager, name string) got {
		full, window := prompt(name, 10), prompt(name, 10).windowed(2)
		m.stored(full, upTo(10))
		m.stored(window, []int{4, 5, 8, 9})
		return m.get("prefix", full, window)
	},
	"a window beyond the full group": func(m *manager, name string) got {
		full, window := prompt(name, 10), prompt(name, 10).windowed(2)
		m.stored(full, upTo(7))
		m.stored(window, []int{4, 5, 8, 9})
		return m.get("prefix", full, window)
	},
}

// What LMCache finds over its own file system adapter it finds over kvstored, byte by byte.
func TestScenarios(t *testing.T) {
	d := daemon.Start(t, roomy)
	folder := startManager(t, d.Socket, object{"type": "fs", "base_path": t.TempDir()})
	ours := map[string]*manager{
		"kvstored":             startManager(t, d.Socket, adapter(nil)),
		"kvstored with groups": startManager(t, d.Socket, adapter(object{"namespace": "groups", "groups": []string{"full", "window 512"}})),
	}
	for name, scenario := range scenarios {
		want := scenario(folder, name)
		for kind, m := range ours {
			have := scenario(m, name)
			t.Logf("%-45s fs %v, %s %v", name, want.Bits, kind, have.Bits)
			if want.hits() == 0 || !have.has(want) {
				t.Errorf("%s: %s has %v, fs %v", name, kind, have.Bits, want.Bits)
			}
		}
	}
	for _, m := range ours {
		other := []row{prompt("all are below", 12), prompt("all are below", 12), prompt("all are below", 12).of(2, 1)}
		other[0].Model, other[1].Salt = "other", "tenant"
		for _, r := range other {
			if have := m.get("prefix", r); have.hits() > 0 {
				t.Errorf("%+v has %v", r, have.Bits)
			}
		}
	}
}

// The daemon stops, starts, is killed, and LMCache is started again.
func TestRestarts(t *testing.T) {
	d := daemon.Start(t, roomy)
	m := startManager(t, d.Socket, adapter(nil))
	p, late := prompt("kept", 16), prompt("late", 4)
	all := func(m *manager, r row, want int, when string) {
		t.Helper()
		have := m.get("prefix", r)
		if have.hits() != want {
			t.Errorf("%s: %v, want %d chunks", when, have.Bits, want)
		}
		m.do("drop", r, upTo(r.Chunks))
	}
	m.stored(p, upTo(16))
	all(m, p, 16, "at first")
	d.Stop()
	all(m, p, 0, "with the daemon stopped")
	m.do("put", late, upTo(4))
	if have := m.get("prefix", late); have.Own != 4 {
		t.Errorf("stored with the daemon stopped: %+v", have)
	}
	m.do("drop", late, upTo(4))
	d.Start()
	m.Ask(object{"do": "healthy"}, nil)
	all(m, p, 16, "started again")
	all(m, late, 0, "stored while it was away") // LMCache does not try again
	d.Flush()
	d.Kill()
	all(m, p, 0, "killed")
	d.Start()
	m.Ask(object{"do": "healthy"}, nil)
	all(m, p, 16, "killed and started")
	m.stored(late, upTo(4))
	m.Stop()
	m = startManager(t, d.Socket, adapter(nil))
	all(m, p, 16, "LMCache started again")
	all(m, late, 4, "LMCache started again")
}
