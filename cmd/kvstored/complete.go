package main

import (
	"context"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvstored/kvstored/internal/admin"
)

// completeTime is how long the Tab key may wait for the daemon.
const completeTime = time.Second

// completion lists what may stand for an argument or a flag.
type completion = func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective)

// fromDaemon completes from what the daemon lists; where it does not answer there is nothing.
func fromDaemon(at *adminFlags, list func(context.Context, *admin.Client) ([]string, error)) completion {
	return func(cmd *cobra.Command, args []string, _ string) (out []string, _ cobra.ShellCompDirective) {
		if len(args) > 0 && cmd.ValidArgsFunction != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp // one is enough
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), completeTime)
		defer cancel()
		_ = at.call(func(c *admin.Client) (err error) { // a shell has no place for an error
			out, err = list(ctx, c)
			return err
		})
		slices.Sort(out)
		return slices.Compact(out), cobra.ShellCompDirectiveNoFileComp
	}
}

// completeSpaces completes ids of spaces, with their models for shells that show these.
func completeSpaces(at *adminFlags) completion {
	return fromDaemon(at, func(ctx context.Context, c *admin.Client) (out []string, err error) {
		var page admin.Spaces
		if err := c.Get(ctx, "/v1/spaces", &page); err != nil {
			return nil, err
		}
		for i := range page.Spaces {
			out = append(out, cobra.CompletionWithDesc(page.Spaces[i].Space, title(&page.Spaces[i])))
		}
		return out, nil
	})
}

// completePins completes names of pins.
func completePins(at *adminFlags) completion {
	return fromDaemon(at, func(ctx context.Context, c *admin.Client) (out []string, err error) {
		var p admin.Pins
		err = c.Get(ctx, "/v1/pins", &p)
		for i := range p.Pins {
			if name := p.Pins[i].Name; name != "" && printable(name) == name {
				out = append(out, name)
			}
		}
		return out, err
	})
}

// completePrefixes completes the prefixes that begin prompts.
func completePrefixes(at *adminFlags) completion {
	return fromDaemon(at, func(ctx context.Context, c *admin.Client) (out []string, err error) {
		var r admin.Prefixes
		err = c.Get(ctx, "/v1/ls", &r, "by", "bytes", "limit", "100")
		for i := range r.Prefixes {
			out = append(out, r.Prefixes[i].Hash[:10])
		}
		return out, err
	})
}
