package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// usageVar has this program be what go test -exec runs test programs by: it names the file
// to which their use is added.
const usageVar = "KVSTORED_CI_USAGE"

// skippedVar names the file to which skipped tests are added.
const skippedVar = "CI_SKIPPED"

const usage = `ci runs the suites as a change must pass them, from any folder of the checkout:

  ci weigh [-C MODULE] [ARGS]
                     go test ARGS (./...) in the root or in a module below it, with the processor time of each package
  ci again [ARGS]    go test ARGS (./...) in e2e; a test that missed a deadline has a second try
  ci flakes [-runs N] [-for D] [-state DIR] [PATTERNS]
                     the root's compiled tests again and again, shuffled, beside two busy loops
`

func main() {
	if file := os.Getenv(usageVar); file != "" {
		os.Exit(account(file, os.Args[1:]))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "ci:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errors.New("want weigh, again or flakes; -h tells of them")
	}
	switch command, rest := args[0], args[1:]; command {
	case "-h", "--help", "help":
		fmt.Print(usage)
		return nil
	case "weigh":
		return weigh(ctx, rest)
	case "again":
		return again(ctx, rest)
	case "flakes":
		return flakes(ctx, rest)
	default:
		return fmt.Errorf("%q is unknown; want weigh, again or flakes", command)
	}
}
