package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/internal/admin"
)

func topCommand() *cobra.Command {
	var (
		at    adminFlags
		every time.Duration
	)
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Watch the daemon at work, in a terminal",
		Long: `Watch the daemon at work: tiers, hits and bandwidth over time, why tokens were
missed, the hottest prefixes, jobs with their progress, clients and leases. Keys:
1 to 6, Tab or the arrows choose a view, space pauses, q ends. Who is no admin sees
the first two views. 'kvstored stats --watch' needs no terminal.`,
		Example: `  kvstored top
  kvstored top --every 5s`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case every < leastWatch:
				return usage(fmt.Errorf("--every %v: give at least %v", every, leastWatch))
			case !isTerminal(cmd.InOrStdin()), !isTerminal(cmd.OutOrStdout()):
				return usage(errors.New("this is no terminal; 'kvstored stats --watch' prints to anything"))
			}
			return withClient(cmd.Context(), at.socket, client.Options{Inline: true}, func(c *client.Client) error {
				return at.call(func(a *admin.Client) error {
					m := newTop(every, func(ctx context.Context) looked { return lookAt(ctx, c, a) })
					end, err := tea.NewProgram(m, tea.WithContext(cmd.Context()), tea.WithInput(cmd.InOrStdin()), tea.WithOutput(cmd.OutOrStdout())).Run()
					if err != nil && !errors.Is(err, tea.ErrInterrupted) {
						return err
					}
					if m, ok := end.(top); ok {
						return m.lost
					}
					return nil
				})
			})
		},
	}
	at.add(cmd)
	cmd.Flags().DurationVar(&every, "every", 2*time.Second, "time between two looks")
	return cmd
}

func isTerminal(of any) bool {
	f, ok := of.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// looked is one look at a daemon.
type looked struct {
	at       time.Time
	stats    *statsView
	admin    error // why there is nothing of what follows
	clients  admin.Clients
	leases   admin.Leases
	jobs     admin.Jobs
	pins     admin.Pins
	retains  admin.Retains
	prefixes admin.Prefixes
	missed   admin.Why
	err      error // why there is nothing at all
}

// lookAt asks a daemon for all that top shows.
func lookAt(ctx context.Context, c *client.Client, a *admin.Client) (l looked) {
	l.at = time.Now()
	if l.stats, l.err = readStats(ctx, c); l.err != nil {
		return l
	}
	l.admin = errors.Join(
		a.Get(ctx, "/v1/clients", &l.clients), a.Get(ctx, "/v1/leases", &l.leases), a.Get(ctx, "/v1/jobs", &l.jobs),
		a.Get(ctx, "/v1/misses", &l.missed), a.Get(ctx, "/v1/pins", &l.pins), a.Get(ctx, "/v1/retains", &l.retains),
		a.Get(ctx, "/v1/ls", &l.prefixes, "by", "heat", "all", "true", "limit", "50"))
	return l
}
