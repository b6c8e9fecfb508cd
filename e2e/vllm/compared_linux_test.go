package vllm_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kvstored/kvstored/e2e/daemon"
	"github.com/kvstored/kvstored/e2e/engines/drive"
)

// canary is the pool's line of an engine that computes all that is there, under a name of
// the model that all of them have.
func canary() object {
	line := pool("")
	line["kv_connector_extra_config"].(object)["kvstored"] = object{"model": "same", "canary": 1}
	return line
}

// compared is what the engine has found blocks to be that it computed again.
func (e *engine) compared() map[string]int {
	e.t.Helper()
	e.Ask(object{"do": "step", "n": 100}, nil)
	out := map[string]int{}
	for name, n := range e.metrics() {
		if result, ok := strings.CutPrefix(name, "vllm:kvstored_compared{"); ok && n > 0 {
			out[strings.TrimSuffix(result, "}")] = int(n)
		}
	}
	return out
}

// TestComputedAgain: KV that is computed again in other batches is equal, or differs in its
// last bits.
func TestComputedAgain(t *testing.T) {
	if !*long {
		t.Skip("it takes minutes: -long")
	}
	python(t)
	for _, dtype := range []string{"float32", "bfloat16"} {
		t.Run(dtype, func(t *testing.T) {
			d := daemon.Start(t, roomy)
			e := start(t, d.Socket, options{Connector: canary(), Options: object{"dtype": dtype}})
			r := seeded()
			prompts := drive.Random(r, 20, 1500)
			e.generate(prompts, nil)
			n := int(blocks(prompts, 32))
			e.stored(d, int64(n))
			for again := 0; again < 10000; again += n {
				e.reset()
				r.Shuffle(len(prompts), func(i, j int) { prompts[i], prompts[j] = prompts[j], prompts[i] })
				if g := e.generate(prompts, object{"together": true}); len(g.Cached) != 0 {
					t.Fatalf("it was loaded: %v", g.Cached)
				}
			}
			got := e.compared()
			t.Log(got)
			if got["equal"]+got["last_bits"] < 10000 || got["different"] != 0 || got["unequal"] != 0 {
				t.Errorf("of blocks that were computed again are %v", got)
			}
		})
	}
}

// TestOtherModels: KV of a model that is another one under the same name is different.
func TestOtherModels(t *testing.T) {
	if !*long {
		t.Skip("it takes minutes: -long")
	}
	python(t)
	d := daemon.Start(t, roomy)
	prompts := drive.Random(seeded(), 1, 200)
	first := start(t, d.Socket, options{Connector: canary()})
	want := first.generate(prompts, nil)
	first.stored(d, blocks(prompts, 32))
	first.Stop()
	for what, o := range map[string]options{
		"other weights": {Model: "other"}, "two layers swapped": {Model: "swapped"},
		"another rope": {Options: object{"hf_overrides": object{"rope_parameters": object{"rope_type": "default", "rope_theta": 20000.0}}}},
	} {
		o.Connector = canary()
		e := start(t, d.Socket, o)
		if g := e.generate(prompts, nil); fmt.Sprint(g.Answers) == fmt.Sprint(want.Answers) {
			t.Errorf("%s answers alike", what)
		}
		e.different(what)
		e.Stop()
	}
}

// different checks that an engine has found blocks different, and says so.
func (e *engine) different(what string) {
	e.t.Helper()
	if got := e.compared(); got["different"] < 3 {
		e.t.Errorf("%s: of blocks that were computed again are %v", what, got)
	} else if !strings.Contains(e.Said(1<<20), "are different from those stored under their keys") {
		e.t.Errorf("%s: nothing is said of %v", what, got)
	}
}

// TestOtherAdapter: KV of an adapter that is another one under the same name and path is
// different.
func TestOtherAdapter(t *testing.T) {
	if !*long {
		t.Skip("it takes minutes: -long")
	}
	python(t)
	d, dir := daemon.Start(t, roomy), t.TempDir()
	prompts := drive.Random(seeded(), 1, 200)
	for i, adapter := range []string{"adapter-1", "adapter-2"} {
		at := filepath.Join(dir, "adapter-1")
		if err := errors.Join(os.RemoveAll(at), os.CopyFS(at, os.DirFS(vllm.Model(t, adapter)))); err != nil {
			t.Fatal(err)
		}
		e := start(t, d.Socket, options{Connector: canary(), Options: object{"enable_lora": true, "max_loras": 1, "max_lora_rank": 8}})
		e.generate(prompts, object{"adapter": 1, "folder": dir})
		if i == 0 {
			e.stored(d, blocks(prompts, 32))
		} else {
			e.different("another adapter")
		}
		e.Stop()
	}
}

// TestShifted: blocks under the keys of their neighbours are different, and an engine that
// may has the space distrusted: another engine then finds nothing there.
func TestShifted(t *testing.T) {
	if !*long {
		t.Skip("it takes minutes: -long")
	}
	python(t)
	d := daemon.Start(t, roomy)
	prompts := drive.Random(seeded(), 1, 200)
	line := canary()
	extra := line["kv_connector_extra_config"].(object)
	extra["spec_name"], extra["spec_module_path"] = "ShiftedSpec", "shifted"
	first := start(t, d.Socket, options{Connector: line})
	want := first.generate(prompts, nil)
	first.stored(d, blocks(prompts, 32))
	first.Stop()
	line = canary()
	line["kv_connector_extra_config"].(object)["kvstored"].(object)["distrust"] = true
	second := start(t, d.Socket, options{Connector: line})
	drive.Equal(t, "computed", second.generate(prompts, nil).Answers, want.Answers, false)
	second.different("shifted")
	second.Stop()
	line = canary()
	line["kv_connector_extra_config"].(object)["kvstored"].(object)["canary"] = 0
	third := start(t, d.Socket, options{Connector: line})
	g := third.generate(prompts, nil)
	drive.Equal(t, "distrusted", g.Answers, want.Answers, false)
	if fromDaemon(g) != 0 {
		t.Errorf("of a distrusted space came %v", g.Cached)
	}
}
