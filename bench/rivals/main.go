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
	"slices"
	"strings"
	"syscall"

	"github.com/kvstored/kvstored/bench/measure"
	"github.com/kvstored/kvstored/config"
)

// mostClients bounds -clients: each takes a connection and room for its values.
const mostClients = 64

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
	o, err := parse(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		exit(nil)
	}
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

// parse reads the command line. Its errors say what to write instead.
func parse(args []string) (*options, error) {
	o := &options{}
	flags := flag.NewFlagSet("rivals", flag.ContinueOnError)
	only := flags.String("only", "", "what to time: a regular expression over the names of rows")
	sizes := flags.String("sizes", "64KiB,256KiB,1MiB,4MiB,8MiB", "of values")
	busy := flags.Bool("busy", false, "only beside two busy loops")
	idle := flags.Bool("idle", false, "only without them")
	clients := flags.Int("clients", 0, "only so many; 0 is one, then four")
	flags.IntVar(&o.rounds, "rounds", 7, "how often everything is timed")
	flags.StringVar(&o.binary, "kvstored", "", "daemon to measure; empty builds this tree's")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	switch {
	case flags.NArg() > 0:
		return nil, fmt.Errorf("%q is no option: -h lists them", flags.Arg(0))
	case o.rounds < 1:
		return nil, fmt.Errorf("-rounds: %d: use 1 or more", o.rounds)
	case *clients < 0 || *clients > mostClients:
		return nil, fmt.Errorf("-clients: %d: use 1 to %d, or 0 for one and then four", *clients, mostClients)
	case *busy && *idle:
		return nil, errors.New("-busy and -idle leave nothing to time: use one of them, or none for both")
	}
	var err error
	if o.only, err = regexp.Compile(*only); err != nil {
		return nil, fmt.Errorf("-only: %w", err)
	}
	if !slices.ContainsFunc(names(), o.only.MatchString) {
		return nil, fmt.Errorf("-only: %q names no row; there are %s", *only, strings.Join(names(), ", "))
	}
	if o.sizes, err = readSizes(*sizes); err != nil {
		return nil, err
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

func readSizes(list string) (sizes []int, err error) {
	for _, text := range strings.Split(list, ",") {
		b, err := config.ParseBytes(text)
		if err != nil || b <= 0 || b > 8<<20 {
			return nil, fmt.Errorf("-sizes: %q is no size up to 8MiB", text)
		}
		sizes = append(sizes, int(b))
	}
	return sizes, nil
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
