package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/kvstored/kvstored/bench/measure"
	"github.com/kvstored/kvstored/config"
)

// runTimeout is how long a run of LMCache's bench may take.
const runTimeout = 5 * time.Minute

// options are what the command line says.
type options struct {
	rounds, keys int
	sizes        []int
	binary, dir  string
}

func main() { measure.Main("lmcache", parse, run) }

func parse(args []string) (*options, error) {
	o := &options{}
	flags := flag.NewFlagSet("lmcache", flag.ContinueOnError)
	flags.IntVar(&o.rounds, "rounds", 5, "how often everything is timed")
	flags.IntVar(&o.keys, "keys", 16, "values of a call")
	sizes := flags.String("sizes", "256KiB,1MiB,4MiB", "of values")
	flags.StringVar(&o.dir, "dir", "", "where files go; empty is the folder for temporary files")
	flags.StringVar(&o.binary, "kvstored", "", "daemon to measure; empty builds this tree's")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	switch {
	case flags.NArg() > 0:
		return nil, fmt.Errorf("%q is no option: -h lists them", flags.Arg(0))
	case o.rounds < 1:
		return nil, fmt.Errorf("-rounds: %d: use 1 or more", o.rounds)
	case o.keys < 2:
		return nil, fmt.Errorf("-keys: %d: use 2 or more, half of which are looked up in vain", o.keys)
	}
	for _, text := range strings.Split(*sizes, ",") {
		b, err := config.ParseBytes(text)
		if err != nil || b <= 0 || b%1024 != 0 || o.keys*int(b) > 64<<20 {
			return nil, fmt.Errorf("-sizes: %q with %d values of a call: use whole KiB, and at most 64MiB a call", text, o.keys)
		}
		o.sizes = append(o.sizes, int(b))
	}
	return o, nil
}

// place is what one run has for itself.
type place struct {
	dir, binary string
	port        int // of a server by TCP, which LMCache's RESP adapter wants
}

// adapter is one of LMCache's places for KV: its server, if there is one, and how LMCache
// is told of it.
type adapter struct {
	name   string
	server func(p *place) (*measure.Server, error)
	spec   func(p *place) map[string]any
}

const ourConfig = `
listen: {socket: %[1]s/kv.sock, resp: ["127.0.0.1:%[2]d"]}
admin: {listen: ""}
cpu: {capacity: 1GiB}
disk: {paths: [%[1]s/disk], capacity: 4GiB}
log: {level: warn}
`

func ours(p *place) (*measure.Server, error) {
	file := filepath.Join(p.dir, "kvstored.yaml")
	err := os.WriteFile(file, fmt.Appendf(nil, ourConfig, p.dir, p.port), 0o600)
	return &measure.Server{Command: []string{p.binary, "serve", "--config", file}, At: p.host()}, err
}

func (p *place) host() string { return "127.0.0.1:" + strconv.Itoa(p.port) }

func resp(p *place) map[string]any {
	return map[string]any{"type": "resp", "host": "127.0.0.1", "port": p.port}
}

var adapters = []adapter{
	{"kvstored", ours, func(p *place) map[string]any {
		return map[string]any{"type": "plugin", "module_path": "kvstored.lmcache_l2", "class_name": "KvstoredL2Adapter",
			"adapter_params": map[string]any{"socket": filepath.Join(p.dir, "kv.sock")}}
	}},
	{"fs", nil, func(p *place) map[string]any {
		return map[string]any{"type": "fs", "base_path": filepath.Join(p.dir, "files")}
	}},
	{"redis", func(p *place) (*measure.Server, error) {
		return &measure.Server{At: p.host(), Command: []string{"redis-server", "--bind", "127.0.0.1", "--port", strconv.Itoa(p.port), "--save", "", "--appendonly", "no", "--dir", p.dir}}, nil
	}, resp},
	{"kvstored-resp", ours, resp},
}

func run(ctx context.Context, o *options) error {
	dir, err := os.MkdirTemp(o.dir, "kvstored-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if o.binary, err = measure.Program(ctx, o.binary, dir); err != nil {
		return err
	}
	have, err := measure.Install(ctx, "lmcache-l2", "redis")
	if err != nil {
		return err
	}
	if why := have.Missing["lmcache-l2"]; why != "" {
		return errors.New(why)
	}
	program := filepath.Join(filepath.Dir(have.Python["lmcache-l2"]), "lmcache")
	table := &measure.Rounds{}
	for _, a := range adapters {
		table.Contenders = append(table.Contenders, a.name)
	}
	for round := range o.rounds {
		fmt.Fprintf(os.Stderr, "lmcache: round %d of %d\n", round+1, o.rounds)
		for at, size := range o.sizes {
			for i := range adapters {
				a := &adapters[(i+at+round)%len(adapters)]
				if a.name == "redis" && have.Missing["redis"] != "" {
					continue
				}
				took, err := a.measure(ctx, o, dir, program, size)
				if err != nil {
					return fmt.Errorf("%s, %d KiB: %w", a.name, size>>10, err)
				}
				for _, t := range took {
					times := table.Row(fmt.Sprintf("%s of %d x %d KiB", t.what, o.keys, size>>10)).Times
					times[a.name] = append(times[a.name], t.ms)
				}
			}
		}
	}
	fmt.Printf("Milliseconds a call of `lmcache bench l2`, medians of %d rounds. kvstored: least and most of the rounds. Others: their time to\n"+
		"kvstored's in the same round, median, least and most.\n\n%s", o.rounds, table.Markdown())
	if why := have.Missing["redis"]; why != "" {
		fmt.Printf("\nNot run: redis: %s.\n", why)
	}
	return nil
}

// timed is what LMCache's bench took for an operation.
type timed struct {
	what string
	ms   float64
}

// measure runs LMCache's bench once, with a server and a folder that are removed after it.
func (a *adapter) measure(ctx context.Context, o *options, dir, program string, size int) (took []timed, err error) {
	p := &place{binary: o.binary}
	if p.dir, err = os.MkdirTemp(dir, "r"); err != nil {
		return nil, err
	}
	defer os.RemoveAll(p.dir)
	if p.port, err = measure.Port(); err != nil {
		return nil, err
	}
	var processes measure.Processes
	defer processes.Stop()
	if a.server != nil {
		s, err := a.server(p)
		if err != nil {
			return nil, err
		}
		if err := processes.Serve(ctx, *s, filepath.Join(p.dir, "server.log")); err != nil {
			return nil, err
		}
	}
	spec, err := json.Marshal(a.spec(p))
	if err != nil {
		return nil, err
	}
	out := filepath.Join(p.dir, "out.json")
	cmd := exec.Command(program, "bench", "l2", "--l2-adapter", string(spec), "--num-keys", strconv.Itoa(o.keys), "--data-size-kb", strconv.Itoa(size>>10),
		"--rounds", "8", "--warmup-rounds", "2", "--no-skip-verify", "--lookup-max-hit-rate", "0.5", "--format", "json", "--output", out)
	client, err := processes.Launch(cmd, measure.LMCacheEnv, filepath.Join(p.dir, "client.log"))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, runTimeout)
	defer cancel()
	if err := client.Wait(ctx); err != nil {
		return nil, err
	}
	text, err := os.ReadFile(out)
	if err != nil {
		return nil, err
	}
	return read(text)
}

// read takes the medians out of what LMCache's bench has written. A call that was late, or
// that did not bring all values, is an error.
func read(text []byte) (took []timed, err error) {
	var report struct {
		Metrics map[string]json.RawMessage `json:"metrics"`
	}
	if err := json.Unmarshal(text, &report); err != nil {
		return nil, err
	}
	for i := 0; ; i++ {
		part, ok := report.Metrics["op_"+strconv.Itoa(i)]
		if !ok {
			break
		}
		var op struct {
			Operation string  `json:"operation"`
			Late      int     `json:"rounds_timed_out"`
			Keys      int     `json:"total_keys"`
			Success   int     `json:"total_success"`
			Median    float64 `json:"duration_p50_ms"`
		}
		if err := json.Unmarshal(part, &op); err != nil {
			return nil, err
		}
		want := op.Keys
		if op.Operation == "Lookup" {
			want /= 2
		}
		if op.Late > 0 || op.Success != want || op.Keys == 0 {
			return nil, fmt.Errorf("%s: %d of %d values, %d rounds late", op.Operation, op.Success, want, op.Late)
		}
		took = append(took, timed{strings.ToLower(op.Operation), op.Median})
	}
	if len(took) != 3 {
		return nil, fmt.Errorf("LMCache's bench has written %d operations, not 3", len(took))
	}
	return took, nil
}
