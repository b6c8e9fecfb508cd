package sglang_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/e2e/daemon"
	"github.com/kvstored/kvstored/e2e/engines/drive"
)

var long = flag.Bool("long", false, "run what takes too long for each change")

const mib = 1 << 20

var sglang = drive.New("sglang")

type object = drive.Object

// engine is a process of engine/drive.py.
type engine struct {
	*drive.Process
	t *testing.T
}

// start starts an engine and waits until it serves.
func start(t *testing.T, socket string, options object) *engine {
	t.Helper()
	sglang.Python(t)
	given := object{"model": sglang.Model(t, "llama"), "options": options}
	if model, named := options["model"]; named {
		delete(options, "model")
		given["model"] = sglang.Model(t, model.(string))
	}
	return &engine{sglang.Start(t, sglang.Environment(socket, "SGLANG_USE_CPU_ENGINE=1"), given), t}
}

// generated is what an engine made of prompts.
type generated struct {
	Answers []drive.Answer
	Aborted []bool
	Tokens  []int          // of each prompt that were not computed
	Cached  map[string]int // those of all, by where they came from
	Seconds float64
}

func (e *engine) generate(prompts [][]int, more object) (g generated) {
	e.t.Helper()
	line := object{"do": "generate", "prompts": prompts}
	for name, value := range more {
		line[name] = value
	}
	e.Ask(line, &g)
	return g
}

// flush has the engine forget what it has.
func (e *engine) flush() {
	e.t.Helper()
	var done bool
	if e.Ask(object{"do": "flush"}, &done); !done {
		e.t.Fatal("the engine does not forget its cache")
	}
}

// stored waits until the daemon has so many chunks.
func stored(t *testing.T, d *daemon.Daemon, chunks int64) {
	t.Helper()
	for end := time.Now().Add(drive.Patience); ; time.Sleep(10 * time.Millisecond) {
		have := d.Stats().Store.Chunks
		if have >= chunks {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d chunks of %d are stored", have, chunks)
		}
	}
}

func roomy(cfg *config.Config) {
	cfg.CPU.Capacity, cfg.Disk.Capacity = 256*mib, 4<<30
}

// hicache are the options for KvstoredHiCache.
func hicache(more object) object {
	line := object{
		"backend_name": "kvstored", "module_path": "kvstored.sglang", "class_name": "KvstoredHiCache", "interface_v1": 1,
		"hicache_storage_pass_prefix_keys": true,
	}
	text, err := json.Marshal(line)
	if err != nil {
		panic(err)
	}
	return with(object{
		"enable_hierarchical_cache": true, "hicache_size": 0, "hicache_ratio": 2.0, "hicache_mem_layout": "page_first",
		"hicache_write_policy": "write_through", "hicache_storage_backend": "dynamic", "hicache_storage_backend_extra_config": string(text),
	}, more)
}

// linker are the options for KvstoredLinker.
func linker(more object) object {
	return with(object{
		"enable_unified_cache_external_linker": true, "unified_cache_external_linker_backend": "dynamic",
		"unified_cache_external_linker_config": object{"linker": "KvstoredLinker", "linker_module_path": "kvstored.sglang.linker"},
	}, more)
}

func with(options, more object) object {
	for name, value := range more {
		options[name] = value
	}
	return options
}

// classes are the two that a user may name.
var classes = map[string]func(more object) object{"hicache": hicache, "linker": linker}

// prompts are three: the second begins as the first does, for 600 tokens.
func prompts() [][]int {
	r := rand.New(rand.NewPCG(1, 2))
	a := drive.Tokens(r, 1000)
	return [][]int{a, append(append([]int(nil), a[:600]...), drive.Tokens(r, 500)...), drive.Tokens(r, 1500)}
}

const page = 16

// pages is how many full pages the prompts have, each that they share counted once.
func pages(prompts [][]int) int64 {
	seen := map[string]bool{}
	for _, p := range prompts {
		for end := page; end <= len(p); end += page {
			seen[fmt.Sprint(p[:end])] = true
		}
	}
	return int64(len(seen))
}
