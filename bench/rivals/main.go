package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"strings"
	"syscall"

	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/internal/measure"
)

// options are what the command line says.
type options struct {
	rounds  int
	only    *regexp.Regexp
	sizes   []int
	binary  string
	loads   []bool // beside busy loops or not
	clients []int
}

func main() {
	if len(os.Args) == 3 && os.Args[1] == "play" {
		exit(play(os.Args[2]))
	}
	if len(os.Args) == 2 && os.Args[1] == "loop" {
		loop()
	}
	o, err := parse()
	if err != nil {
		exit(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM) // servers are not left behind
	defer stop()
	exit(run(ctx, o))
}

// loop computes until it is killed.
func loop() {
	for i, x := 0, uint64(1); i >= 0; i++ {
		x = x*6364136223846793005 + 1
		if x == 0 {
			i = 0 // or the loop would have nothing to do
		}
	}
}

func parse() (*options, error) {
	o := &options{}
	only := flag.String("only", "", "what to time: a regular expression over the names of rows")
	sizes := flag.String("sizes", "64KiB,256KiB,1MiB,4MiB,8MiB", "of values")
	busy := flag.Bool("busy", false, "only beside two busy loops")
	idle := flag.Bool("idle", false, "only without them")
	clients := flag.Int("clients", 0, "only so many; 0 is one, then four")
	flag.IntVar(&o.rounds, "rounds", 7, "how often everything is timed")
	flag.StringVar(&o.binary, "kvstored", "", "daemon to measure; empty builds this tree's")
	flag.Parse()
	var err error
	if o.only, err = regexp.Compile(*only); err != nil {
		return nil, err
	}
	for _, text := range strings.Split(*sizes, ",") {
		b, err := config.ParseBytes(text)
		if err != nil || b <= 0 || b > 8<<20 {
			return nil, fmt.Errorf("-sizes: %q is no size up to 8MiB", text)
		}
		o.sizes = append(o.sizes, int(b))
	}
	if !*busy {
		o.loads = append(o.loads, false)
	}
	if !*idle {
		o.loads = append(o.loads, true)
	}
	if o.clients = []int{1, 4}; *clients > 0 {
		o.clients = []int{*clients}
	}
	return o, nil
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "rivals:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func run(ctx context.Context, o *options) error {
	dir, err := os.MkdirTemp("", "kvstored-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if o.binary, err = measure.Program(ctx, o.binary, dir); err != nil {
		return err
	}
	for _, busy := range o.loads {
		for _, clients := range o.clients {
			if err := phase(ctx, dir, o, busy, clients); err != nil {
				return err
			}
		}
	}
	return nil
}

// phase times everything with so many clients, on servers of its own: what they
// have learned of other clients is not to count.
func phase(ctx context.Context, dir string, o *options, busy bool, clients int) error {
	where := "idle"
	if busy {
		where = "beside two busy loops"
	}
	var rows table
	for _, size := range o.sizes { // new servers for each: of others' values nothing is left in them
		systems, stop, err := start(ctx, dir, o.binary)
		if err == nil && busy {
			var more func()
			more, err = loops(ctx)
			defer more()
		}
		for round := 0; err == nil && round < o.rounds; round++ {
			for i := range systems {
				s := &systems[(i+round)%len(systems)]
				err = errors.Join(err, s.round(ctx, o, &rows, clients, size))
			}
		}
		stop()
		if err != nil {
			return err
		}
	}
	fmt.Printf("%s, clients: %d\n", where, clients)
	rows.print()
	return nil
}

// round has a process of its own play the clients, and adds its cells.
func (s *server) round(ctx context.Context, o *options, rows *table, clients, size int) error {
	order, err := json.Marshal(order{System: s.name, Socket: s.socket, PID: s.pid(), Clients: clients, Size: size, Only: o.only.String()})
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, os.Args[0], "play", string(order))
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("%s, values of %d bytes: %w", s.name, size, err)
	}
	var seen []cell
	if err := json.Unmarshal(out, &seen); err != nil {
		return err
	}
	for i := range seen {
		rows.add(s.name, size, &seen[i])
	}
	return nil
}

// loops starts two processes that compute and do nothing else.
func loops(ctx context.Context) (stop func(), err error) {
	var cmds []*exec.Cmd
	stop = func() {
		for _, cmd := range cmds {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	}
	for range 2 {
		cmd := exec.CommandContext(ctx, os.Args[0], "loop")
		if err := cmd.Start(); err != nil {
			return stop, err
		}
		cmds = append(cmds, cmd)
	}
	return stop, nil
}
