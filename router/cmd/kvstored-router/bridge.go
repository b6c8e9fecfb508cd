package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/kvstored/kvstored/client"
	daemon "github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/internal/httpd"
	"github.com/kvstored/kvstored/router/bridge"
	"github.com/kvstored/kvstored/router/config"
)

// bridgeFlags are what bridge is told.
type bridgeFlags struct {
	socket, publish, replay, metrics string
	topic, level                     string
	open                             bool
	batches                          int
	grace                            time.Duration
}

func bridgeCommand() *cobra.Command {
	var f bridgeFlags
	cmd := &cobra.Command{
		Use:   "bridge",
		Short: "Publish the events of a daemon over ZeroMQ, as vLLM publishes its own",
		Long: `Follow the events of a daemon on its socket, and publish them over ZeroMQ in the
form in which vLLM publishes its own: numbered batches, replays of those that a
subscriber missed, and snapshots of all that is there. The daemon must have
events.enabled in its configuration; told is of the spaces that this user may read.
ZeroMQ asks for no password. It runs until SIGTERM or SIGINT.`,
		Example: `  kvstored-router bridge --publish 127.0.0.1:5557 --replay 127.0.0.1:5558`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.check(); err != nil {
				return err
			}
			return failed(runBridge(cmd.Context(), &f))
		},
	}
	flags := cmd.Flags()
	socket := os.Getenv("KVSTORED_SOCKET")
	if socket == "" {
		socket = daemon.DefaultFor(os.Geteuid(), os.Environ()).Listen.Socket
	}
	flags.StringVarP(&f.socket, "socket", "s", socket, "socket of the daemon; $KVSTORED_SOCKET sets the default")
	flags.StringVar(&f.publish, "publish", "", "where subscribers connect: host:port or the path of a socket, which is made with mode 0660")
	flags.StringVar(&f.replay, "replay", "", "where they ask for batches that they missed, or for a snapshot")
	flags.StringVar(&f.topic, "topic", "", "topic of the messages")
	flags.BoolVar(&f.open, "open", false, "let these be addresses that other machines reach")
	flags.IntVar(&f.batches, "batches", 1024, "batches that can be asked for again")
	flags.DurationVar(&f.grace, "grace", 30*time.Second, "that the daemon may be away before what it has is forgotten")
	flags.StringVar(&f.metrics, "metrics", "", "host:port of /metrics, /healthz and /readyz; nowhere by default")
	flags.StringVar(&f.level, "log-level", "info", "least severe level that is written: trace, debug, info, warn or error")
	return cmd
}

// check reports the first thing that is wrong with the flags.
func (f *bridgeFlags) check() error {
	switch {
	case f.publish == "":
		return errors.New("--publish is missing; name where subscribers connect, such as 127.0.0.1:5557")
	case len(f.topic) > 128:
		return fmt.Errorf("--topic: %d bytes; use at most 128", len(f.topic))
	case f.grace < time.Second:
		return fmt.Errorf("--grace: want a duration of 1s or more, not %v", f.grace)
	case f.batches < 1 || f.batches > 1<<20:
		return fmt.Errorf("--batches: want a number from 1 to %d, not %d", 1<<20, f.batches)
	}
	for _, at := range []struct{ flag, addr string }{{"--publish", f.publish}, {"--replay", f.replay}} {
		if !f.open && !config.OnlyHere(at.addr) {
			return fmt.Errorf("%s: %s is open to other machines, and asks for no password; use 127.0.0.1, or give --open where only routers reach it", at.flag, at.addr)
		}
	}
	return nil
}

func runBridge(ctx context.Context, f *bridgeFlags) error {
	log, lines := startLog(daemon.Log{Level: f.level, Format: "auto"})
	defer lines.Close()
	b := bridge.New(bridge.Options{Topic: f.topic, Batches: f.batches, Grace: f.grace, Log: log, Dial: func(ctx context.Context) (bridge.Daemon, error) {
		return client.Dial(ctx, f.socket, client.Options{Name: "kvstored-router bridge", Inline: true})
	}})
	g, ctx := errgroup.WithContext(ctx)
	for _, s := range []struct {
		flag, addr string
		serve      func(context.Context, net.Listener) error
	}{{"--publish", f.publish, b.Pub.Serve}, {"--replay", f.replay, b.Replay.Serve}, {"--metrics", f.metrics, func(ctx context.Context, l net.Listener) error {
		return httpd.Serve(ctx, l, httpd.Options{Handler: b.Handler(), Connections: 16, Log: log})
	}}} {
		if s.addr == "" {
			continue
		}
		l, err := listen(s.flag, s.addr, 0o660, log)
		if err != nil {
			return err
		}
		g.Go(func() error { return s.serve(ctx, l) })
	}
	g.Go(func() error { return b.Run(ctx) })
	return g.Wait()
}
