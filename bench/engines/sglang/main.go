package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"github.com/kvstored/kvstored/bench/measure"
)

const (
	page       = 16 // tokens, of the engines
	vocabulary = 2048
	settle     = time.Second // for what an engine stores behind its answer, or does when it goes on
)

type object = measure.Object

func main() { measure.Main("sglang", parse, run) }

func parse(args []string) (*measure.EngineOptions, error) {
	return measure.ParseEngine("sglang", args, 10*time.Minute, "1000,3000", 300, 8000) // HiCache does not ask for shorter ones
}

// engines are the columns, in their order; the last is computed by the first. What again
// differs from own is chance.
var engines = []string{"own", "again", "files", "hicache", "linker"}

// given are the options of an engine.
func given(name string, most int) (object, error) {
	o := object{"max_total_tokens": 4 * most, "context_length": 2 * most}
	hicache := func(backend string, line object) error {
		text, err := json.Marshal(line)
		for key, value := range (object{
			"enable_hierarchical_cache": true, "hicache_ratio": 2.0, "hicache_mem_layout": "page_first", "hicache_write_policy": "write_through",
			"hicache_storage_backend": backend, "hicache_storage_backend_extra_config": string(text),
			"hicache_storage_prefetch_policy": "wait_complete",
		}) {
			o[key] = value
		}
		return err
	}
	switch name {
	case "files":
		return o, hicache("file", object{})
	case "hicache":
		return o, hicache("dynamic", object{
			"backend_name": "kvstored", "module_path": "kvstored.sglang", "class_name": "KvstoredHiCache", "interface_v1": 1,
			"hicache_storage_pass_prefix_keys": true,
		})
	case "linker":
		o["enable_unified_cache_external_linker"], o["unified_cache_external_linker_backend"] = true, "dynamic"
		o["unified_cache_external_linker_config"] = object{"linker": "KvstoredLinker", "linker_module_path": "kvstored.sglang.linker"}
	}
	return o, nil
}

const config = `
listen: {socket: %[1]s/kv.sock}
admin: {listen: ""}
cpu: {capacity: 1GiB}
disk: {capacity: 0}
log: {level: warn}
`

func run(ctx context.Context, o *measure.EngineOptions) (err error) {
	work, err := os.MkdirTemp(o.Dir, "kvstored-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	var processes measure.Processes
	defer processes.Stop()
	binary, err := measure.Program(ctx, o.Binary, work)
	if err != nil {
		return err
	}
	daemon, err := measure.Start(binary, filepath.Join(work, "kv.sock"), fmt.Sprintf(config, work))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, daemon.Close()) }()
	started, err := start(ctx, o, &processes, daemon.Socket, work)
	if err != nil {
		return err
	}
	return rounds(ctx, o, started)
}

func start(ctx context.Context, o *measure.EngineOptions, processes *measure.Processes, socket, work string) (map[string]*measure.Engine, error) {
	kit, err := measure.InstallEngine(ctx, "sglang", work)
	if err != nil {
		return nil, err
	}
	most := 0
	for _, n := range o.Sizes {
		most = max(most, n)
	}
	env := []string{"SGLANG_USE_CPU_ENGINE=1", "KVSTORED_SOCKET=" + socket, "SGLANG_HICACHE_FILE_BACKEND_STORAGE_DIR=" + filepath.Join(work, "files")}
	started := map[string]*measure.Engine{}
	for _, name := range engines { // they start together
		line, err := given(name, most)
		if err == nil {
			started[name], err = kit.Launch(processes, env, filepath.Join(work, name+".log"), object{"model": filepath.Join(kit.Models, "llama"), "options": line})
		}
		if err != nil {
			return nil, err
		}
	}
	for _, name := range engines {
		if err := started[name].Hear(ctx, nil); err != nil {
			return nil, fmt.Errorf("%s does not start: %w", name, err)
		}
		if err := started[name].Pause(); err != nil {
			return nil, err
		}
	}
	return started, nil
}

func rounds(ctx context.Context, o *measure.EngineOptions, started map[string]*measure.Engine) error {
	until, random := time.Now().Add(o.Time), rand.New(rand.NewPCG(1, 2))
	table := measure.Rounds{Contenders: append(engines[:len(engines):len(engines)], "computed"), Differences: true}
	prompts := map[int][]int{}
	for _, size := range o.Sizes {
		for range size {
			prompts[size] = append(prompts[size], 4+random.IntN(vocabulary-4))
		}
		for _, name := range engines {
			var took float64
			err := alone(started[name], func() (err error) {
				took, err = first(ctx, started[name], prompts[size], 0)
				time.Sleep(settle)
				return err
			})
			if err != nil {
				return fmt.Errorf("%s, %d tokens: %w", name, size, err)
			}
			times := table.Row(fmt.Sprint(size)).Times
			times["computed"] = append(times["computed"], took)
		}
	}
	round := 0
	for ; round < o.Rounds && (round == 0 || time.Now().Before(until)); round++ {
		for at, size := range o.Sizes {
			for i := range engines {
				name := engines[(i+at+round)%len(engines)]
				var took float64
				err := alone(started[name], func() (err error) {
					took, err = hit(ctx, started[name], name, prompts[size])
					return err
				})
				if err != nil {
					return fmt.Errorf("%s, %d tokens: %w", name, size, err)
				}
				times := table.Row(fmt.Sprint(size)).Times
				times[name] = append(times[name], took)
			}
		}
	}
	fmt.Printf("Milliseconds, medians of %d rounds, and the difference to the first column in the same round: median, and quartiles.\n\n%s", round, table.Markdown())
	return nil
}

// alone runs an engine that is paused else: the scheduler of one that waits takes a
// processor.
func alone(e *measure.Engine, do func() error) error {
	if err := e.Resume(); err != nil {
		return err
	}
	return errors.Join(do(), e.Pause())
}

// hit times a prompt that comes from where a column says.
func hit(ctx context.Context, e *measure.Engine, name string, prompt []int) (float64, error) {
	time.Sleep(settle)
	if name != "own" && name != "again" {
		var done bool
		if err := e.Ask(ctx, object{"do": "flush"}, &done); err != nil || !done {
			return 0, errors.Join(err, errors.New("the engine does not forget its cache"))
		}
	}
	return first(ctx, e, prompt, (len(prompt)-1)/page*page)
}

// first is the milliseconds until a prompt's first token, of which so many tokens were there.
func first(ctx context.Context, e *measure.Engine, prompt []int, there int) (float64, error) {
	var g struct {
		Tokens  []int
		Seconds float64
	}
	if err := e.Ask(ctx, object{"do": "generate", "prompts": [][]int{prompt}, "tokens": 1}, &g); err != nil {
		return 0, err
	}
	if len(g.Tokens) != 1 || g.Tokens[0] != there {
		return 0, fmt.Errorf("%d tokens were there, want %d", g.Tokens, there)
	}
	return 1e3 * g.Seconds, nil
}
