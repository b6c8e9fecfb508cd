package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/internal/admin"
	"github.com/kvstored/kvstored/internal/base"
	"github.com/kvstored/kvstored/internal/human"
)

// jsonFlag gives a command the flag for output that machines read; see show.
func jsonFlag(cmd *cobra.Command) {
	cmd.Flags().Bool("json", false, "print one JSON object")
}

// show prints a result as JSON where that is asked for, else as text does. Text returns the
// error that the result means, in both cases.
func show(cmd *cobra.Command, r any, text func(io.Writer) error) error {
	w := cmd.OutOrStdout()
	if on, _ := cmd.Flags().GetBool("json"); on {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		if err := e.Encode(r); err != nil {
			return err
		}
		w = io.Discard
	}
	return text(w)
}

// answer asks an admin.socket, and shows the answer.
func answer[R any](cmd *cobra.Command, at *adminFlags, ask func(context.Context, *admin.Client) (R, error), text func(io.Writer, R) error) error {
	var r R
	err := at.call(func(c *admin.Client) (err error) {
		r, err = ask(cmd.Context(), c)
		return err
	})
	if err != nil {
		return err
	}
	return show(cmd, r, func(w io.Writer) error { return text(w, r) })
}

// asking makes a command that answers.
func asking[R any](cmd *cobra.Command, ask func(ctx context.Context, c *admin.Client, args []string) (R, error), text func(io.Writer, R) error) *adminFlags {
	at := new(adminFlags)
	at.add(cmd)
	jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return answer(cmd, at, func(ctx context.Context, c *admin.Client) (R, error) { return ask(ctx, c, args) }, text)
	}
	return at
}

// quietFlag gives a command that shows its progress the flag for not doing so.
func quietFlag(cmd *cobra.Command) { cmd.Flags().Bool("quiet", false, "show no progress") }

// progressOf is where a command shows its progress.
func progressOf(cmd *cobra.Command) io.Writer {
	if quiet, _ := cmd.Flags().GetBool("quiet"); quiet {
		return io.Discard
	}
	return cmd.ErrOrStderr()
}

// followEvery is how often the daemon is asked how far its work is.
const followEvery = time.Second

// follow shows the progress of work that the daemon does while do runs: left is how many
// bytes of it there still are. Without an answer nothing is shown.
func follow(cmd *cobra.Command, socket, what string, left func(*statsView) int64, do func() error) error {
	ctx, end := context.WithCancel(cmd.Context())
	var looks sync.WaitGroup
	looks.Go(func() {
		if base.Sleep(ctx, followEvery) != nil {
			return // quick work is not looked at
		}
		_ = withClient(ctx, socket, client.Options{Inline: true}, func(c *client.Client) error {
			var bar *human.Progress
			total := int64(0)
			for {
				_, v, err := readStats(ctx, c)
				if err != nil {
					return err
				}
				n := left(v)
				if total = max(total, n); bar == nil {
					bar = human.NewBytes(progressOf(cmd), what, total)
					defer bar.End()
				}
				bar.At(total-n, total)
				if err := base.Sleep(ctx, followEvery); err != nil {
					return err
				}
			}
		})
	})
	err := do()
	end()
	looks.Wait()
	return err
}

// printable is a text of a client's, quoted where a terminal might obey it.
func printable(s string) string {
	if strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.Quote(s)
	}
	return s
}

// short is a text of a client's, printable and cut to so many letters.
func short(s string, most int) string {
	s = cmp.Or(printable(s), "-")
	if r := []rune(s); len(r) > most {
		s = string(r[:most-3]) + "..."
	}
	return s
}

// ago is a duration of so many seconds, short.
func ago(seconds float64) string {
	d := time.Duration(seconds * float64(time.Second))
	switch {
	case d >= 48*time.Hour:
		return fmt.Sprintf("%.0fd", d.Hours()/24)
	case d >= 2*time.Hour:
		return fmt.Sprintf("%.0fh", d.Hours())
	case d >= 2*time.Minute:
		return fmt.Sprintf("%.0fm", d.Minutes())
	}
	return fmt.Sprintf("%.3gs", max(0, d.Round(10*time.Millisecond).Seconds()))
}

func printLeftOut(w io.Writer, n int) {
	if n > 0 {
		fmt.Fprintf(w, "and %s more\n", human.Count(n))
	}
}

// socketFlag gives a command the flag that says where the daemon is.
func socketFlag(cmd *cobra.Command, socket *string) {
	cmd.Flags().StringVarP(socket, "socket", "s", config.DefaultSocket(), "the daemon's Unix socket; $KVSTORED_SOCKET sets the default")
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
		var p admin.Claims
		err = c.Get(ctx, "/v1/claims", &p)
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
		err = c.Get(ctx, "/v1/prefixes", &r, "by", "bytes", "limit", "100")
		for i := range r.Prefixes {
			out = append(out, r.Prefixes[i].Hash[:10])
		}
		return out, err
	})
}
