package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/kvstored/kvstored/internal/admin"
)

func trustCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "trust SPACE",
		Short: "Find the chunks of a distrusted space again",
		Long: `Find the chunks of a space again that an engine distrusts, as 'kvstored list spaces'
says: it has computed some of them anew, and got other values. First give engines whose
models differ a namespace each, and forget the space unless it is right. It takes an admin.`,
		Args: cobra.ExactArgs(1),
	}
	cmd.ValidArgsFunction = completeSpaces(asking(cmd, func(ctx context.Context, c *admin.Client, args []string) (*admin.Trust, error) {
		t := new(admin.Trust)
		return t, c.Do(ctx, "POST", "/v1/trust", admin.Trust{Space: args[0]}, t)
	}, func(w io.Writer, t *admin.Trust) error {
		_, err := fmt.Fprintf(w, "space %s is trusted again\n", t.Space)
		return err
	}))
	return cmd
}
