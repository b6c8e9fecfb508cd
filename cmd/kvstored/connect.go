package main

import (
	"cmp"
	"context"
	"os"

	"github.com/spf13/cobra"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/internal/admin"
)

// socketFlag gives a command the flag that says where the daemon is.
func socketFlag(cmd *cobra.Command, socket *string) {
	cmd.Flags().StringVarP(socket, "socket", "s", defaultSocket(), "the daemon's Unix socket; $KVSTORED_SOCKET sets the default")
}

// defaultSocket is where a command goes that was not told where the daemon listens.
func defaultSocket() string {
	if s := os.Getenv("KVSTORED_SOCKET"); s != "" {
		return s
	}
	own := config.DefaultFor(os.Geteuid(), os.Environ()).Listen.Socket
	return socketThere(own, config.Default().Listen.Socket)
}

// socketThere is own, the socket of this user's daemon, unless only that of the
// machine's daemon is there, as in a container and beside a systemd unit.
func socketThere(own, machine string) string {
	if _, err := os.Lstat(own); err == nil {
		return own
	}
	if _, err := os.Lstat(machine); err == nil {
		return machine
	}
	return own
}

// adminFlags say where a daemon is administered.
type adminFlags struct{ socket, own string }

func (f *adminFlags) add(cmd *cobra.Command) {
	socketFlag(cmd, &f.socket)
	cmd.Flags().StringVar(&f.own, "admin-socket", "", "the daemon's admin.socket, where that is not the other with .admin behind it")
}

// adminError is an error of a call to an admin.socket.
type adminError struct{ error }

func (e adminError) Unwrap() error { return e.error }

// call runs f with a client of the admin.socket.
func (f *adminFlags) call(do func(*admin.Client) error) error {
	c := admin.NewClient(cmp.Or(f.own, config.AdminSocketOf(f.socket)), 0)
	defer c.Close()
	if err := do(c); err != nil {
		return adminError{err}
	}
	return nil
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
