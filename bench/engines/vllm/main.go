package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/kvstored/kvstored/bench/measure"
	"github.com/kvstored/kvstored/client"
)

const (
	missed     = 512 // tokens of a prompt that is nowhere
	batch      = 8   // prompts that are decoded together
	decoded    = 64  // steps
	short      = 16  // tokens, fewer than a block has
	vocabulary = 2048
)

// blocks are the tokens of a block, and the bytes of their KV, of the timed models of
// e2e/engines/models.py.
var blocks = map[string]struct{ block, bytes int }{"llama": {32, 128 << 10}, "narrow": {64, 96 << 10}}

// options are what the command line says.
type options struct {
	*measure.EngineOptions
	model string
	http  bool
}

func main() { measure.Main("vllm", parse, run) }

func parse(args []string) (*options, error) {
	o := &options{}
	var err error
	o.EngineOptions, err = measure.ParseEngine("vllm", args, 14*time.Minute, "1500,6000,24000", missed, 32000, func(f *flag.FlagSet) {
		f.StringVar(&o.model, "model", "llama", "llama, or narrow: 1.5 KiB of KV a token instead of 4, in blocks of 64 tokens instead of 32")
		f.BoolVar(&o.http, "serve", false, "engines are vllm serve, with a scheduler in a process of its own, and are asked by HTTP")
	})
	if err == nil && blocks[o.model].block == 0 {
		err = fmt.Errorf("-model: %q: use llama or narrow", o.model)
	}
	return o, err
}

// The connectors of engines, by their names. Tier and pool have spaces of their own: what the
// one brings up from disk would be in DRAM for the other.
func connectors(dir string) map[string]object {
	tiering := func(tier object) object {
		return object{"kv_connector": "OffloadingConnector", "kv_connector_extra_config": object{
			"spec_name": "CpuTieringSpec", "spec_module_path": "cpu_tiering", "cpu_bytes_to_use": 512 << 20, "secondary_tiers": []object{tier},
		}}
	}
	return map[string]object{
		"own": {}, "again": {},
		"files": tiering(object{"type": "fs", "root_dir": filepath.Join(dir, "files")}),
		"tier":  tiering(object{"type": "KvstoredTier", "module_path": "kvstored.vllm", "namespace": "tier"}),
		"pool": {
			"kv_connector": "KvstoredConnector", "kv_connector_module_path": "kvstored.vllm.connector",
			"kv_connector_extra_config": object{"spec_name": "KvstoredOffloadingSpec", "spec_module_path": "kvstored.vllm", "kvstored": object{"namespace": "pool"}},
		},
	}
}

var engines = []string{"own", "again", "files", "tier", "pool"}

// column is where prompts come from.
type column struct {
	name, engine string
	forget       string // what the engine forgets before: "", "device" or "all"
}

var fromMemory = []column{
	{"own", "own", ""}, {"again", "again", ""}, {"host", "files", "device"}, {"files", "files", "all"}, {"tier", "tier", "all"}, {"pool", "pool", "all"},
}

var fromDisk = []column{{"tier-disk", "tier", "all"}, {"pool-disk", "pool", "all"}}

const config = `
listen: {socket: %[1]s/kv.sock}
admin: {listen: ""}
cpu: {capacity: 1GiB}
disk: {paths: [%[1]s/disk], capacity: 8GiB}
log: {level: warn}
`

type object = measure.Object

// bench is what one run has.
type bench struct {
	*options
	block   int                  // tokens, of the engines
	bytes   int                  // of a block
	disks   map[int]*measure.Fio // by size of a prompt
	random  *rand.Rand
	work    string
	daemon  *measure.Daemon
	engines map[string]engine
	prompts map[int][]int // by size
	first   measure.Rounds
	beside  measure.Rounds
	hung    measure.Rounds
}

func run(ctx context.Context, o *options) (err error) {
	until := time.Now().Add(o.Time)
	b := &bench{options: o, block: blocks[o.model].block, bytes: blocks[o.model].bytes, disks: map[int]*measure.Fio{}, random: rand.New(rand.NewPCG(1, 2)), engines: map[string]engine{}, prompts: map[int][]int{}}
	if b.work, err = os.MkdirTemp(o.Dir, "kvstored-bench-"); err != nil {
		return err
	}
	defer os.RemoveAll(b.work)
	var processes measure.Processes
	defer processes.Stop()
	if err := b.start(ctx, &processes); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.daemon.Close()) }()
	b.first = measure.Rounds{Contenders: []string{"own"}, Differences: true}
	for _, c := range append(fromMemory[1:], fromDisk...) {
		b.first.Contenders = append(b.first.Contenders, c.name)
	}
	b.first.Contenders = append(b.first.Contenders, "fio", "computed")
	b.beside = measure.Rounds{Contenders: engines, Differences: true}
	b.hung = measure.Rounds{Contenders: engines, Differences: true}
	if err := b.store(ctx); err != nil {
		return err
	}
	round := 0
	for ; round < o.Rounds && (round == 0 || time.Now().Before(until)); round++ {
		fmt.Fprintf(os.Stderr, "vllm: round %d\n", round+1)
		if err := b.round(ctx, round); err != nil {
			return err
		}
	}
	if err := b.hang(ctx); err != nil {
		return err
	}
	fmt.Printf("Milliseconds, medians of %d rounds, and the difference to the first column in the same round: median, and quartiles.\n\n%s\n%s\nThe daemon hangs:\n\n%s",
		round, b.first.Markdown(), b.beside.Markdown(), b.hung.Markdown())
	return nil
}

// start installs what is missing, and starts the daemon and the engines.
func (b *bench) start(ctx context.Context, processes *measure.Processes) (err error) {
	if b.Binary, err = measure.Program(ctx, b.Binary, b.work); err != nil {
		return err
	}
	kit, err := measure.InstallEngine(ctx, "vllm", b.work)
	if err != nil {
		return err
	}
	if err := b.serve(ctx); err != nil {
		return err
	}
	longest := 0
	for _, n := range b.Sizes {
		longest = max(longest, n)
	}
	for _, name := range engines { // they start together
		if b.engines[name], err = b.launch(kit, processes, name, longest+1000); err != nil {
			return err
		}
	}
	for _, name := range engines {
		if err := b.engines[name].started(ctx); err != nil {
			return fmt.Errorf("%s does not start: %w", name, err)
		}
	}
	return nil
}

// serve starts the daemon, and waits until it serves.
func (b *bench) serve(ctx context.Context) (err error) {
	if b.daemon, err = measure.Start(b.Binary, filepath.Join(b.work, "kv.sock"), fmt.Sprintf(config, b.work)); err != nil {
		return err
	}
	return b.wait(ctx, func(s *stats) bool { return !s.Store.Recovering && s.Arena.Populated == s.Arena.Capacity })
}

type stats struct {
	Server struct {
		Connections int `json:"connections"`
	} `json:"server"`
	Store struct {
		Chunks     int  `json:"chunks"`
		Recovering bool `json:"recovering"`
	} `json:"store"`
	Arena struct {
		Capacity  int64 `json:"capacity_bytes"`
		Populated int64 `json:"populated_bytes"`
	} `json:"arena"`
}

// wait asks the daemon until what it says will do.
func (b *bench) wait(ctx context.Context, will func(*stats) bool) error {
	ctx, cancel := context.WithTimeout(ctx, measure.StartTimeout)
	defer cancel()
	c, err := b.daemon.Dial(ctx, client.Options{Name: "bench", Inline: true})
	if err != nil {
		return err
	}
	defer c.Close()
	for s := new(stats); ; {
		text, err := c.Stats(ctx)
		if err == nil {
			err = json.Unmarshal(text, s)
		}
		if err != nil || will(s) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the daemon does not come to it: %s", text)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// store has the engines compute the prompts, and store them.
func (b *bench) store(ctx context.Context) error {
	chunks := 0
	for _, size := range b.Sizes {
		b.prompts[size] = b.tokens(size)
		chunks += 2 * (size / b.block)
		for _, name := range engines {
			took, err := b.time(ctx, name, b.prompts[size], 0)
			if err != nil {
				return err
			}
			if name == "own" || name == "again" {
				times := b.first.Row(fmt.Sprint(size)).Times
				times["computed"] = append(times["computed"], took)
			}
		}
	}
	for _, name := range []string{"files", "tier", "pool"} { // the last step's are stored with the next
		if err := b.engines[name].settle(ctx); err != nil {
			return err
		}
	}
	return b.wait(ctx, func(s *stats) bool { return s.Store.Chunks >= chunks })
}

func (b *bench) tokens(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = 4 + b.random.IntN(vocabulary-4)
	}
	return out
}

// round times each column once, the daemon's disk after a restart.
func (b *bench) round(ctx context.Context, round int) error {
	if err := b.columns(ctx, round, fromMemory); err != nil {
		return err
	}
	for i := range engines {
		if err := b.others(ctx, engines[(i+round)%len(engines)]); err != nil {
			return err
		}
	}
	if err := b.daemon.Close(); err != nil {
		return err
	}
	if err := b.serve(ctx); err != nil {
		return err
	}
	if err := b.wait(ctx, func(s *stats) bool { return s.Server.Connections >= 4 }); err != nil { // one of tier and of this process, two of pool
		return err
	}
	if err := b.columns(ctx, round, fromDisk); err != nil {
		return err
	}
	return b.floor(ctx)
}

// fioDepth is fio's best of bench/disk for pieces as large as blocks.
const fioDepth = 8

// floor has fio, where it is installed, read what the prompts' blocks have, from the same disk.
func (b *bench) floor(ctx context.Context) error {
	if _, err := exec.LookPath("fio"); err != nil {
		return nil
	}
	for _, size := range b.Sizes {
		bytes, f := size/b.block*b.bytes, b.disks[size]
		if f == nil {
			f = measure.NewFio(b.work, int64(bytes))
			b.disks[size] = f
			if _, err := f.Run(ctx, "write", b.bytes, fioDepth); err != nil {
				return err
			}
		}
		rate, err := f.Run(ctx, "read", b.bytes, fioDepth)
		if err != nil {
			return err
		}
		times := b.first.Row(fmt.Sprint(size)).Times
		times["fio"] = append(times["fio"], 1e3*float64(bytes)/rate)
	}
	return nil
}

func (b *bench) columns(ctx context.Context, round int, columns []column) error {
	for at, size := range b.Sizes {
		for i := range columns {
			c := columns[(i+at+round)%len(columns)]
			took, err := b.hit(ctx, c, b.prompts[size])
			if err != nil {
				return fmt.Errorf("%s, %d tokens: %w", c.name, size, err)
			}
			times := b.first.Row(fmt.Sprint(size)).Times
			times[c.name] = append(times[c.name], took)
		}
	}
	return nil
}

// hit times a prompt that comes from where a column says.
func (b *bench) hit(ctx context.Context, c column, prompt []int) (float64, error) {
	if c.forget == "device" { // the host pool may have lost it meanwhile
		if _, err := b.time(ctx, c.engine, prompt, len(prompt)); err != nil {
			return 0, err
		}
	}
	if c.forget != "" {
		if err := b.engines[c.engine].forget(ctx, c.forget == "all"); err != nil {
			return 0, fmt.Errorf("the engine does not forget its cache: %w", err)
		}
	}
	return b.time(ctx, c.engine, prompt, len(prompt))
}

// others times a prompt that is nowhere, and steps that decode.
func (b *bench) others(ctx context.Context, name string) error {
	g, err := b.engines[name].generate(ctx, [][]int{b.tokens(missed)}, 1)
	if err != nil {
		return err
	}
	b.note(&b.beside, name, fmt.Sprintf("a miss of %d", missed), 1e3*g.Seconds)
	if g.Steps > 0 {
		b.note(&b.beside, name, "its steps of the engine", float64(g.Steps))
	}
	if g, err = b.engines[name].generate(ctx, b.few(short), 1+decoded); err != nil {
		return err
	}
	what := fmt.Sprintf("a step that decodes %d", batch)
	b.note(&b.beside, name, what, 1e3*g.Seconds/(1+decoded))
	if g.Processor > 0 {
		b.note(&b.beside, name, "its processor time", 1e3*g.Processor/(1+decoded))
	}
	return nil
}

// few are prompts for one batch.
func (b *bench) few(tokens int) [][]int {
	prompts := make([][]int, batch)
	for i := range prompts {
		prompts[i] = b.tokens(tokens)
	}
	return prompts
}

// hangs is how many batches are timed while the daemon hangs.
const hangs = 8

// hang stops the daemon's process, and times batches of prompts that are nowhere.
func (b *bench) hang(ctx context.Context) error {
	if err := syscall.Kill(b.daemon.PID(), syscall.SIGSTOP); err != nil {
		return err
	}
	defer func() { _ = syscall.Kill(b.daemon.PID(), syscall.SIGCONT) }()
	for i := range hangs {
		for _, name := range engines {
			g, err := b.engines[name].generate(ctx, b.few(missed), 1)
			if err != nil {
				return err
			}
			what := "the first batch"
			if i > 0 {
				what = "those that follow"
			}
			b.note(&b.hung, name, fmt.Sprintf("%s of %d prompts of %d", what, batch, missed), 1e3*g.Seconds)
		}
	}
	return nil
}

func (b *bench) note(r *measure.Rounds, name, what string, value float64) {
	times := r.Row(what).Times
	times[name] = append(times[name], value)
}

// time is the milliseconds until a prompt's first token, of which so many tokens were there.
func (b *bench) time(ctx context.Context, name string, prompt []int, there int) (float64, error) {
	g, err := b.engines[name].generate(ctx, [][]int{prompt}, 1)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", name, err)
	}
	found := 0
	for _, n := range g.Cached {
		found += n
	}
	if found > there || found+2*b.block < there {
		return 0, fmt.Errorf("%s: of %d tokens %d were there, want %d: %v", name, len(prompt), found, there, g.Cached)
	}
	return 1e3 * g.Seconds, nil
}
