package measure

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Main is that of a bench: parse reads the command line, and run measures. The context of run
// ends when the user interrupts it, so that processes are not left behind.
func Main[O any](name string, parse func(args []string) (O, error), run func(ctx context.Context, o O) error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	o, err := parse(os.Args[1:])
	if err == nil {
		err = run(ctx, o)
	}
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
}

// EngineOptions are the options of a bench that asks engines for prompts.
type EngineOptions struct {
	Rounds int           // at most
	Time   time.Duration // no round begins later; one is made in any case
	Sizes  []int         // tokens of the prompts
	Binary string        // daemon to measure; empty for this tree's
	Dir    string        // where files go; empty for the folder for temporary files
}

// ParseEngine reads the options of a bench of an engine whose prompts have least to most tokens,
// and the options that more adds.
func ParseEngine(name string, args []string, lasts time.Duration, sizes string, least, most int, more ...func(*flag.FlagSet)) (*EngineOptions, error) {
	o := &EngineOptions{}
	flags := flag.NewFlagSet(name, flag.ContinueOnError)
	flags.IntVar(&o.Rounds, "rounds", 100, "how often everything is timed, at most")
	flags.DurationVar(&o.Time, "for", lasts, "no round begins later; one is made in any case")
	text := flags.String("sizes", sizes, "tokens of the prompts")
	flags.StringVar(&o.Dir, "dir", "", "where files go; empty is the folder for temporary files")
	flags.StringVar(&o.Binary, "kvstored", "", "daemon to measure; empty builds this tree's")
	for _, add := range more {
		add(flags)
	}
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	if flags.NArg() > 0 || o.Rounds < 1 {
		return nil, fmt.Errorf("%q, -rounds %d: use no argument, and a round at least", flags.Args(), o.Rounds)
	}
	for _, size := range strings.Split(*text, ",") {
		n, err := strconv.Atoi(size)
		if err != nil || n < least || n > most {
			return nil, fmt.Errorf("-sizes: %q: use numbers from %d to %d", size, least, most)
		}
		o.Sizes = append(o.Sizes, n)
	}
	return o, nil
}
