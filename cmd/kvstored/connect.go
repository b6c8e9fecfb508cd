package main

import (
	"context"
	"os"

	"github.com/spf13/cobra"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/config"
)

// socketFlag gives a command the flag that says where the daemon is.
func socketFlag(cmd *cobra.Command, socket *string) {
	cmd.Flags().StringVarP(socket, "socket", "s", defaultSocket(), "the daemon's Unix socket; $KVSTORED_SOCKET sets the default")
}

// defaultSocket is where this user's daemon listens unless it was told otherwise.
func defaultSocket() string {
	if s := os.Getenv("KVSTORED_SOCKET"); s != "" {
		return s
	}
	return config.DefaultFor(os.Geteuid(), os.Environ()).Listen.Socket
}

// withClient connects, runs f and disconnects. Where ctx has no deadline the
// client's own bounds each call, so that a stopped daemon holds up no command.
func withClient(ctx context.Context, socket string, o client.Options, f func(*client.Client) error) error {
	o.Name = "kvstored command"
	c, err := client.Dial(ctx, socket, o)
	if err != nil {
		return err
	}
	defer c.Close()
	return f(c)
}
