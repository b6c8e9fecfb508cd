package vllm_test

import (
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

const (
	patience = drive.Patience
	mib      = 1 << 20
)

var vllm = drive.New("vllm")

func python(t *testing.T) { t.Helper(); vllm.Python(t) }

type object = drive.Object

// engine is a process of engine/drive.py.
type engine struct {
	*drive.Process
	t *testing.T
}

// options of an engine.
type options struct {
	Model     string `json:"model"` // a name of models.py
	Connector object `json:"connector"`
	Options   object `json:"options"`
}

// start starts an engine and waits until it serves.
func start(t *testing.T, socket string, o options) *engine {
	t.Helper()
	python(t)
	if o.Model == "" {
		o.Model = "llama"
	}
	o.Model = vllm.Model(t, o.Model)
	if o.Options == nil {
		o.Options = object{}
	}
	if o.Connector == nil {
		o.Connector = object{}
	}
	env := vllm.Environment(socket, "VLLM_NO_USAGE_STATS=1", "VLLM_CPU_KVCACHE_SPACE=1", "VLLM_CPU_OMP_THREADS_BIND=nobind", "VLLM_ENABLE_V1_MULTIPROCESSING=0")
	return &engine{vllm.Start(t, env, o), t}
}

// generated is what an engine made of prompts.
type generated struct {
	Answers []drive.Answer
	Cached  map[string]int // tokens by where they came from
	Seconds float64
}

// generate has the engine answer prompts, one at a time.
func (e *engine) generate(prompts [][]int, more object) (g generated) {
	e.t.Helper()
	line := object{"do": "generate", "prompts": prompts}
	for name, value := range more {
		line[name] = value
	}
	e.Ask(line, &g)
	return g
}

// reset has the engine forget what it, and vLLM's host pool, has.
func (e *engine) reset() {
	e.t.Helper()
	var done bool
	if e.Ask(object{"do": "reset"}, &done); !done {
		e.t.Fatal("the engine does not forget its cache")
	}
}

func (e *engine) metrics() (m map[string]float64) {
	e.t.Helper()
	e.Ask(object{"do": "metrics"}, &m)
	return m
}

// stored waits until the daemon has so many chunks, and no more come.
func (e *engine) stored(d *daemon.Daemon, chunks int64) {
	e.t.Helper()
	var have int64
	for end := time.Now().Add(patience); have < chunks; {
		if time.Now().After(end) {
			e.t.Fatalf("%d chunks of %d are stored\n%s", have, chunks, e.Said(4000))
		}
		e.Ask(object{"do": "step"}, nil)
		have = d.Stats().Store.Chunks
	}
	if have > chunks {
		e.t.Fatalf("%d chunks are stored, want %d", have, chunks)
	}
}

// quiet waits until no more chunks come, where it is vLLM that knows how many there are.
func (e *engine) quiet(d *daemon.Daemon) {
	e.t.Helper()
	for have := int64(-1); d.Stats().Store.Chunks != have; {
		have = d.Stats().Store.Chunks
		e.Ask(object{"do": "step", "n": 200}, nil)
	}
}

// fromDaemon is how many tokens came from the daemon.
func fromDaemon(g generated) (n int) {
	for source, tokens := range g.Cached {
		if source != "device" {
			n += tokens
		}
	}
	return n
}

// roomy is a daemon that has room for all that a test stores.
func roomy(cfg *config.Config) {
	cfg.CPU.Capacity, cfg.Disk.Capacity = 256*mib, 4<<30
}

// tier is the line of the tier class.
func tier(namespace string, more object) object {
	line := object{"type": "KvstoredTier", "module_path": "kvstored.vllm", "namespace": namespace}
	for name, value := range more {
		line[name] = value
	}
	return object{"kv_connector": "OffloadingConnector", "kv_connector_extra_config": object{
		"spec_name": "CpuTieringSpec", "spec_module_path": "cpu_tiering", "cpu_bytes_to_use": 128 * mib,
		"secondary_tiers": []object{line},
	}}
}

// pool is the line of the class without host memory of vLLM's.
func pool(namespace string) object {
	return object{
		"kv_connector": "KvstoredConnector", "kv_connector_module_path": "kvstored.vllm.connector",
		"kv_connector_extra_config": object{
			"spec_name": "KvstoredOffloadingSpec", "spec_module_path": "kvstored.vllm", "kvstored": object{"namespace": namespace},
		},
	}
}

// sharing are prompts of between low and high tokens, each of which begins as others do.
func sharing(r *rand.Rand, prompts, low, high int) (out [][]int) {
	starts := drive.Random(r, 3, low)
	for i := range prompts {
		start := starts[i%3][:low/4+r.IntN(3*low/4)]
		out = append(out, append(append([]int(nil), start...), drive.Tokens(r, low+r.IntN(high-low)-len(start))...))
	}
	return out
}

// blocks is how many full blocks of a size the prompts have, each that they share counted once.
func blocks(prompts [][]int, size int) int64 {
	seen := map[string]bool{}
	for _, p := range prompts {
		for end := size; end <= len(p); end += size {
			seen[fmt.Sprint(p[:end])] = true
		}
	}
	return int64(len(seen))
}

func total(prompts [][]int) (n int) {
	for _, p := range prompts {
		n += len(p)
	}
	return n
}
