package main

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/internal/admin"
	"github.com/kvstored/kvstored/internal/cli"
)

// socketFlag gives a command the flag that says where the daemon is.
func socketFlag(cmd *cobra.Command, socket *string) {
	cmd.Flags().StringVarP(socket, "socket", "s", cli.DefaultSocket(), "the daemon's Unix socket; $KVSTORED_SOCKET sets the default")
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
		if is, e := os.Stat(socket); e == nil && is.Mode()&fs.ModeSocket == 0 {
			return &exitError{exitUnreachable, fmt.Errorf("%s is no socket", socket)}
		}
		return err
	}
	defer c.Close()
	return f(c)
}
