package vllm_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/e2e/daemon"
	"github.com/kvstored/kvstored/e2e/engines/drive"
)

// each runs a long test with each class.
func each(t *testing.T, test func(t *testing.T, connector func(string) object)) {
	if !*long {
		t.Skip("it takes minutes: -long")
	}
	python(t)
	for name, connector := range classes {
		t.Run(name, func(t *testing.T) { test(t, connector) })
	}
}

// seeded are random numbers that are the same each time.
func seeded() *rand.Rand { return rand.New(rand.NewPCG(3, 4)) }

// TestTrouble: whatever happens to the daemon, at rest or in the middle of loads, each
// answer stays what it was, and hits come back with the daemon. Batches differ in their last
// bits, so tokens are compared.
func TestTrouble(t *testing.T) {
	each(t, func(t *testing.T, connector func(string) object) {
		d := daemon.Start(t, roomy)
		e := start(t, d.Socket, options{Connector: connector("")})
		r := seeded()
		prompts := drive.Random(r, 8, 1500)
		want := e.generate(prompts, object{"together": true})
		e.stored(d, blocks(prompts, 32))
		again := func(what string, hits bool) {
			t.Helper()
			e.reset()
			g := e.generate(prompts, object{"together": true})
			drive.Equal(t, what, g.Answers, want.Answers, false)
			if hits && fromDaemon(g) == 0 {
				t.Errorf("%s: %v", what, g.Cached)
			}
			t.Logf("%s: %.2f s, %v", what, g.Seconds, g.Cached)
		}
		again("from DRAM", true)
		before := d.Attached()
		d.Kill()
		again("killed", false)
		again("away", false)
		d.Start()
		d.AwaitAttached(before)
		again("restarted", true)
		goOn := d.Pause()
		again("stopped", false)
		again("stopped, second", false)
		goOn()
		d.AwaitAttached(before)
		e.Ask(object{"do": "step", "n": 500}, nil)
		again("continued", true)
		for i := range 20 {
			if !d.Running() {
				d.Start()
				d.AwaitAttached(before)
			}
			timer := time.AfterFunc(time.Duration(r.IntN(600))*time.Millisecond, func() { _ = d.Process().Kill() })
			again(fmt.Sprintf("killed in the middle, %d", i), false)
			if !timer.Stop() {
				_ = d.Wait()
			}
		}
	})
}

// TestKept: of a thousand loads, in the middle of which the daemon is killed and comes
// again with all that was in its DRAM, and while leases give way as it has too little, no
// answer is another than before.
func TestKept(t *testing.T) {
	each(t, func(t *testing.T, connector func(string) object) {
		d := daemon.Folder(t, func(cfg *config.Config) { cfg.CPU.Capacity, cfg.CPU.Keep, cfg.Disk.Capacity = 64*mib, true, 2<<30 })
		d.Keep()
		d.Start()
		e := start(t, d.Socket, options{Connector: connector("")})
		r := seeded()
		prompts := drive.Random(r, 20, 1500) // 115 MiB
		want := e.generate(prompts, nil)
		e.stored(d, blocks(prompts, 32))
		before, found := d.Attached(), 0
		round := 0
		for ; found < 1000*1472 && round < 200; round++ {
			kill := round%3 == 0
			timer := time.AfterFunc(time.Duration(r.IntN(1000))*time.Millisecond, func() {
				if kill {
					_ = d.Process().Kill()
				}
			})
			e.reset()
			for at := 0; at < len(prompts); at += 4 { // as many as there is room for
				g := e.generate(prompts[at:at+4], object{"together": true})
				drive.Near(t, fmt.Sprint("round ", round), g.Answers, want.Answers[at:at+4], 1e-3) // wrong bytes are off by far more
				found += fromDaemon(g)
			}
			if !timer.Stop() && kill {
				_ = d.Wait()
				d.Start()
				d.AwaitAttached(before)
			}
		}
		t.Logf("%d rounds, %d tokens from the daemon", round, found)
		if found < 1000*1472 {
			t.Error("too few for a test of loads")
		}
	})
}

// TestSalts: what is stored under one salt is found under no other, and under none.
func TestSalts(t *testing.T) {
	each(t, func(t *testing.T, connector func(string) object) {
		d := daemon.Start(t, roomy)
		e := start(t, d.Socket, options{Connector: connector("")})
		prompts := drive.Random(seeded(), 1, 1500)
		want := e.generate(prompts, object{"salt": "A"})
		e.stored(d, blocks(prompts, 32))
		for _, tt := range []struct {
			salt  string
			found bool
		}{{"B", false}, {"A", true}, {"", false}} {
			e.reset()
			g := e.generate(prompts, object{"salt": tt.salt})
			drive.Equal(t, "salt "+tt.salt, g.Answers, want.Answers, false)
			if (fromDaemon(g) > 0) != tt.found {
				t.Errorf("salt %q: %v", tt.salt, g.Cached)
			}
		}
	})
}

// TestAborts: requests that are aborted while their blocks come leave the others right.
func TestAborts(t *testing.T) {
	each(t, func(t *testing.T, connector func(string) object) {
		d := daemon.Start(t, roomy)
		slow := connector("")
		slow["kv_connector_extra_config"].(object)["copy_seconds"] = 0.5 // of the tier's worker
		e := start(t, d.Socket, options{Connector: slow})
		prompts := drive.Random(seeded(), 6, 1500)
		want := e.generate(prompts, object{"together": true})
		e.stored(d, blocks(prompts, 32))
		for _, after := range []int{1, 3, 8, 20} {
			e.reset()
			var got struct{ IDs map[string][]int }
			e.Ask(object{"do": "aborted", "prompts": prompts, "abort": []int{0, 3}, "after": after}, &got)
			for i, ids := range got.IDs {
				var n int
				if _, err := fmt.Sscan(i, &n); err != nil {
					t.Fatal(err)
				}
				if fmt.Sprint(ids) != fmt.Sprint(want.Answers[n].IDs) {
					t.Errorf("aborted after %d steps: prompt %d has %v, want %v", after, n, ids, want.Answers[n].IDs)
				}
			}
			if len(got.IDs) != 4 {
				t.Errorf("aborted after %d steps: %d answers", after, len(got.IDs))
			}
		}
		e.reset()
		drive.Equal(t, "afterwards", e.generate(prompts, object{"together": true}).Answers, want.Answers, false)
	})
}

// TestPreempted: more sequences than the KV cache has room for.
func TestPreempted(t *testing.T) {
	each(t, func(t *testing.T, connector func(string) object) {
		d := daemon.Start(t, roomy)
		e := start(t, d.Socket, options{Connector: connector(""), Options: object{"num_gpu_blocks_override": 120, "max_model_len": 2048}})
		prompts := drive.Random(seeded(), 8, 900)
		want := e.generate(prompts, object{"tokens": 200})
		for i := range 2 {
			drive.Equal(t, fmt.Sprint("round ", i), e.generate(prompts, object{"tokens": 200, "together": true}).Answers, want.Answers, false)
		}
		if n := e.metrics()["vllm:num_preemptions"]; n == 0 {
			t.Error("nothing was preempted")
		}
	})
}

// TestSmallDRAM: less than what is stored; the rest comes from disk.
func TestSmallDRAM(t *testing.T) {
	each(t, func(t *testing.T, connector func(string) object) {
		d := daemon.Start(t, func(cfg *config.Config) { cfg.CPU.Capacity, cfg.Disk.Capacity = 64*mib, 2<<30 })
		e := start(t, d.Socket, options{Connector: connector("")})
		prompts := drive.Random(seeded(), 20, 1500) // 115 MiB
		want := e.generate(prompts, nil)
		e.stored(d, blocks(prompts, 32))
		e.reset()
		g := e.generate(prompts, nil)
		drive.Equal(t, "from disk", g.Answers, want.Answers, false)
		if fromDaemon(g) < total(prompts)*9/10 {
			t.Errorf("of %d tokens came %v", total(prompts), g.Cached)
		}
	})
}

// TestTwoEngines: the second finds what the first stored, also while both run.
func TestTwoEngines(t *testing.T) {
	each(t, func(t *testing.T, connector func(string) object) {
		d := daemon.Start(t, roomy)
		first := start(t, d.Socket, options{Connector: connector("")})
		second := start(t, d.Socket, options{Connector: connector("")})
		prompts := drive.Random(seeded(), 6, 1500)
		want := first.generate(prompts, nil)
		first.stored(d, blocks(prompts, 32))
		own := first.generate(prompts, nil)
		g := second.generate(prompts, nil)
		drive.Equal(t, "the second", g.Answers, own.Answers, true)
		drive.Equal(t, "the second", g.Answers, want.Answers, false)
		if fromDaemon(g) != own.Cached["device"] {
			t.Errorf("%v, want %v", g.Cached, own.Cached)
		}
	})
}

// TestOtherWeights: of two models nothing is found across, though their prompts are equal.
func TestOtherWeights(t *testing.T) {
	each(t, func(t *testing.T, connector func(string) object) {
		d := daemon.Start(t, roomy)
		prompts := drive.Random(seeded(), 2, 1500)
		for _, model := range []string{"llama", "other", "narrow"} {
			e := start(t, d.Socket, options{Model: model, Connector: connector("")})
			if g := e.generate(prompts, nil); fromDaemon(g) != 0 {
				t.Errorf("%s: %v", model, g.Cached)
			}
			e.Ask(object{"do": "step"}, nil)
			e.Stop()
		}
	})
}

// TestSmallHostMemory: too little of vLLM's for a step's blocks stores nothing, and says so.
func TestSmallHostMemory(t *testing.T) {
	if !*long {
		t.Skip("it takes minutes: -long")
	}
	python(t)
	d := daemon.Start(t, roomy)
	connector := tier("", nil)
	connector["kv_connector_extra_config"].(object)["cpu_bytes_to_use"] = 4 * mib                           // 32 blocks, a prompt has 93
	e := start(t, d.Socket, options{Connector: connector, Options: object{"max_num_batched_tokens": 8192}}) // a prompt is one step
	prompts := drive.Random(seeded(), 2, 3000)
	e.generate(prompts, nil)
	e.Ask(object{"do": "step", "n": 200}, nil)
	if n := d.Stats().Store.Chunks; n != 0 {
		t.Errorf("%d chunks were stored", n)
	}
	if said := e.Said(1 << 20); !strings.Contains(said, "Set cpu_bytes_to_use to ") {
		t.Errorf("nothing is said of it\n%s", said[max(0, len(said)-4000):])
	}
}
