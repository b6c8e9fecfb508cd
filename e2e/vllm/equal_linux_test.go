package vllm_test

import (
	"math/rand/v2"
	"testing"

	"github.com/kvstored/kvstored/e2e/daemon"
	"github.com/kvstored/kvstored/e2e/engines/drive"
)

// classes are the two that a user may name, by what the connector is given, and the pool once
// more on a stand-in for a GPU.
var classes = map[string]func(namespace string) object{
	"tier": func(namespace string) object { return tier(namespace, nil) },
	"pool": pool,
	"pool on a GPU": func(namespace string) object {
		line := pool(namespace)
		extra := line["kv_connector_extra_config"].(object)
		extra["spec_name"], extra["spec_module_path"] = "OnGpuSpec", "on_gpu"
		return line
	},
}

// TestEqual: 20 prompts answered with KV from the daemon, by an engine that never computed
// it, are answered bit by bit as from the engine's own cache; and a daemon that is killed,
// away and back costs hits and nothing else. Prompts go one at a time: the last bits of what
// is computed depend on the batch.
func TestEqual(t *testing.T) {
	python(t)
	r := rand.New(rand.NewPCG(1, 2))
	prompts := sharing(r, 20, 300, 1200)
	n := blocks(prompts, 32)
	plain := start(t, "/nowhere", options{})
	cold := plain.generate(prompts, object{"tokens": 16})
	own := plain.generate(prompts, object{"tokens": 16})
	plain.Stop()
	if got := own.Cached["device"]; got < total(prompts)*9/10 {
		t.Fatalf("the engine's own cache had %d tokens of %d", got, total(prompts))
	}
	for name, connector := range classes {
		t.Run(name, func(t *testing.T) {
			d := daemon.Start(t, roomy)
			first := start(t, d.Socket, options{Connector: connector("")})
			drive.Equal(t, "cold", first.generate(prompts, object{"tokens": 16}).Answers, cold.Answers, true)
			first.stored(d, n)
			first.Stop()

			e := start(t, d.Socket, options{Connector: connector("")})
			hits := func(what string) {
				t.Helper()
				g := e.generate(prompts, object{"tokens": 16})
				drive.Equal(t, what, g.Answers, own.Answers, true)
				if got := g.Cached["device"] + fromDaemon(g); got != own.Cached["device"] || fromDaemon(g) < got/2 {
					t.Errorf("%s: of %d tokens, of which the own cache had %d, came %v", what, total(prompts), own.Cached["device"], g.Cached)
				}
				t.Logf("%s: %.1f s, %v", what, g.Seconds, g.Cached)
			}
			hits("after the engine's restart")

			before := d.Attached()
			t.Logf("%d connections", before)
			d.Kill()
			e.reset()
			g := e.generate(prompts[:4], object{"tokens": 16})
			drive.Equal(t, "without the daemon", g.Answers, cold.Answers[:4], false)
			if fromDaemon(g) != 0 {
				t.Errorf("without the daemon: %v", g.Cached)
			}
			d.Start()
			d.AwaitAttached(before)
			e.reset()
			hits("after the daemon's restart")
		})
	}
}
