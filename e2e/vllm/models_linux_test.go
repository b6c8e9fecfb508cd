package vllm_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/kvstored/kvstored/e2e/daemon"
	"github.com/kvstored/kvstored/e2e/engines/drive"
)

// TestAdapters: of two LoRA adapters and none, nothing is found across.
func TestAdapters(t *testing.T) {
	each(t, func(t *testing.T, connector func(string) object) {
		d := daemon.Start(t, roomy)
		e := start(t, d.Socket, options{Connector: connector(""), Options: object{"enable_lora": true, "max_loras": 2, "max_lora_rank": 8}})
		prompts := drive.Random(seeded(), 2, 1500)
		var want [3]generated
		for adapter := range want {
			want[adapter] = e.generate(prompts, object{"adapter": adapter})
			e.stored(d, int64(1+adapter)*blocks(prompts, 32))
			if len(want[adapter].Cached) != 0 {
				t.Errorf("adapter %d: %v", adapter, want[adapter].Cached)
			}
			for other := range adapter {
				if fmt.Sprint(want[other].Answers) == fmt.Sprint(want[adapter].Answers) {
					t.Errorf("adapters %d and %d answer alike", other, adapter)
				}
			}
		}
		e.reset()
		for adapter := range want {
			g := e.generate(prompts, object{"adapter": adapter})
			drive.Equal(t, fmt.Sprint("adapter ", adapter), g.Answers, want[adapter].Answers, false)
			if fromDaemon(g) < total(prompts)*9/10 {
				t.Errorf("adapter %d: of %d tokens came %v", adapter, total(prompts), g.Cached)
			}
		}
	})
}

// TestWindows: a model half of whose layers have a window.
func TestWindows(t *testing.T) { hybrid(t, "gemma", "pool", nil) }

// TestStates: a model half of whose layers have a recurrent state.
func TestStates(t *testing.T) { hybrid(t, "lfm", "", object{"enable_prefix_caching": true}) }

// hybrid runs a model of several groups with each class, of which one is the short form: what an
// engine finds after its own restart, and then the daemon's, is what its own cache had.
func hybrid(t *testing.T, model, short string, more object) {
	python(t)
	for name, connector := range classes {
		t.Run(name, func(t *testing.T) {
			if !*long && name != short {
				t.Skip("it takes minutes: -long")
			}
			d := daemon.Start(t, roomy)
			prompts := drive.Random(seeded(), 4, 1500)
			o := options{Model: model, Connector: connector(""), Options: more}
			first := start(t, d.Socket, o)
			want := first.generate(prompts, nil)
			own := first.generate(prompts, nil)
			drive.Equal(t, "computed", own.Answers, want.Answers, false)
			first.quiet(d)
			first.Stop()

			e := start(t, d.Socket, o)
			hits := func(what string) {
				t.Helper()
				g := e.generate(prompts, nil)
				drive.Equal(t, what, g.Answers, own.Answers, true)
				if fromDaemon(g) == 0 || fromDaemon(g) != own.Cached["device"] {
					t.Errorf("%s: of %d tokens came %v; the engine itself had %v", what, total(prompts), g.Cached, own.Cached)
				}
				t.Logf("%s: %d chunks, %.1f s, %v", what, d.Stats().Store.Chunks, g.Seconds, g.Cached)
			}
			hits("after the engine's restart")
			if name == "tier" { // windows that it stores before it has learned its groups end with the daemon
				return
			}
			before := d.Attached()
			d.Kill()
			e.reset()
			g := e.generate(prompts[:1], nil)
			drive.Equal(t, "without the daemon", g.Answers, want.Answers[:1], false)
			d.Start()
			d.AwaitAttached(before)
			e.reset()
			hits("after the daemon's restart")
			if *long {
				killed(t, d, e, prompts, want)
			}
		})
	}
}

// killed kills a daemon in the middle of loads: answers stay what they were. Prompts go one at a
// time: in batches vLLM answers the model with states otherwise, with no connector too.
func killed(t *testing.T, d *daemon.Daemon, e *engine, prompts [][]int, want generated) {
	t.Helper()
	before, r := d.Attached(), seeded()
	for i := range 8 {
		e.reset()
		timer := time.AfterFunc(time.Duration(r.IntN(400))*time.Millisecond, func() { _ = d.Process().Kill() })
		g := e.generate(prompts, nil)
		drive.Equal(t, fmt.Sprintf("killed in the middle, %d", i), g.Answers, want.Answers, false)
		t.Logf("killed in the middle, %d: %.2f s, %v", i, g.Seconds, g.Cached)
		if !timer.Stop() {
			_ = d.Wait()
			d.Start()
			d.AwaitAttached(before)
		}
	}
}

// two tensor parallel ranks.
var two = object{"tensor_parallel_size": 2, "distributed_executor_backend": "mp"}

// TestRanks: two ranks find what two of an engine before have stored, also of a daemon that
// comes again while not all of them, nor the scheduler, have its memory.
func TestRanks(t *testing.T) {
	each(t, func(t *testing.T, connector func(string) object) {
		d := daemon.Start(t, roomy)
		prompts := drive.Random(seeded(), 4, 700)
		first := start(t, d.Socket, options{Connector: connector(""), Options: two})
		want := first.generate(prompts, nil)
		own := first.generate(prompts, nil)
		first.quiet(d)
		first.Stop()
		e := start(t, d.Socket, options{Connector: connector(""), Options: two})
		g := e.generate(prompts, nil)
		drive.Equal(t, "computed", own.Answers, want.Answers, false)
		drive.Equal(t, "after the engine's restart", g.Answers, own.Answers, true)
		if fromDaemon(g) != own.Cached["device"] {
			t.Errorf("of %d tokens came %v; the engine itself had %v", total(prompts), g.Cached, own.Cached)
		}
		t.Logf("%d chunks, %v", d.Stats().Store.Chunks, g.Cached)
		before, found := d.Attached(), 0
		for i := range 4 {
			d.Kill()
			d.Start()
			for range 3 {
				e.reset()
				g := e.generate(prompts, nil)
				drive.Equal(t, fmt.Sprint("after kill ", i), g.Answers, own.Answers, false)
				found += fromDaemon(g)
			}
		}
		d.AwaitAttached(before)
		if found == 0 {
			t.Error("after kills nothing came from the daemon")
		}
	})
}

// TestRankBehind: the manager says HIT while one of two ranks maps other memory, or cannot
// load at all: answers stay what they are, and the engine goes on.
func TestRankBehind(t *testing.T) {
	if !*long {
		t.Skip("it takes minutes: -long")
	}
	python(t)
	for _, model := range []string{"llama", "gemma"} {
		t.Run(model, func(t *testing.T) { rankBehind(t, model) })
	}
}

func rankBehind(t *testing.T, model string) {
	d := daemon.Start(t, roomy)
	line := pool("")
	extra := line["kv_connector_extra_config"].(object)
	extra["spec_name"], extra["spec_module_path"] = "BehindSpec", "behind"
	e := start(t, d.Socket, options{Model: model, Connector: line, Options: two})
	prompts := drive.Random(seeded(), 4, 700)
	want := e.generate(prompts, nil)
	e.quiet(d)
	found := 0
	for i := range 6 {
		e.reset()
		g := e.generate(prompts, object{"together": i%2 == 1})
		drive.Equal(t, fmt.Sprint("round ", i), g.Answers, want.Answers, false)
		found += fromDaemon(g)
		t.Logf("round %d: %v", i, g.Cached)
	}
	if once := 6 * 32 * int(blocks(prompts, 32)); found <= once { // vLLM counts those that failed too
		t.Errorf("%d tokens were loaded, and %d are there: no load was repeated", found, once)
	}
}
