package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/internal/cli"
	"github.com/kvstored/kvstored/internal/human"
)

type warmResult struct {
	MatchedChunks uint32                 `json:"matched_chunks"`
	ReadyChunks   uint32                 `json:"ready_chunks"` // in DRAM now
	ReadyTokens   uint64                 `json:"ready_tokens"`
	Tiers         map[string]lookupCount `json:"tiers"` // where they came from
	Done          bool                   `json:"done"`
	Reason        string                 `json:"reason"`
}

func warmCommand() *cobra.Command {
	var (
		socket, lookupID string
		asJSON           bool
		wait             time.Duration
		flags            promptFlags
	)
	cmd := &cobra.Command{
		Use:   "warm",
		Short: "Bring the stored KV of a prompt up to DRAM",
		Long: `Bring the stored prefix of a prompt up to DRAM from disk and the object store,
when nobody else loads. Nothing is kept from being evicted afterwards. The
prompt is given as below, or by the --lookup-id of an earlier prefetch.
` + promptHelp,
		Example: `  kvstored warm --text "You are a helpful assistant."`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if wait < time.Millisecond {
				return usage(fmt.Errorf("--wait %v: use 1ms or more; what is not done then is given up", wait))
			}
			var o client.Options
			call := func(c *client.Client) (client.Match, client.State, error) {
				return c.WarmNamed(cmd.Context(), lookupID, 0, wait)
			}
			if lookupID == "" {
				prompt, _, err := flags.prompt(cmd.InOrStdin())
				if err != nil {
					return err
				}
				o.Space = &flags.space
				call = func(c *client.Client) (client.Match, client.State, error) {
					return c.Warm(cmd.Context(), prompt, 0, wait)
				}
			}
			o.Inline = true
			return withClient(cmd.Context(), socket, o, func(c *client.Client) error {
				m, st, err := call(c)
				if err != nil {
					return err
				}
				if asJSON {
					if err := printJSON(cmd.OutOrStdout(), warmed(&m, &st)); err != nil {
						return err
					}
				} else {
					printWarm(cmd, &m, &st)
				}
				switch {
				case !st.Done:
					return fmt.Errorf("not done within %v; raise --wait", wait)
				case st.Reason != client.Complete:
					return errors.New("ended by " + st.Reason.String())
				}
				return nil
			})
		},
	}
	socketFlag(cmd, &socket)
	jsonFlag(cmd, &asJSON)
	cmd.Flags().StringVar(&lookupID, "lookup-id", "", "what an earlier prefetch was called")
	flags.add(cmd, "lookup-id")
	cmd.Flags().DurationVar(&wait, "wait", time.Minute, "how long it may take")
	return cmd
}

func warmed(m *client.Match, st *client.State) warmResult {
	r := warmResult{
		MatchedChunks: m.Total.Chunks, ReadyChunks: st.Ready.Chunks, ReadyTokens: st.Ready.Tokens,
		Tiers: make(map[string]lookupCount), Done: st.Done, Reason: st.Reason.String(),
	}
	for i, n := range st.Tiers {
		r.Tiers[tierNames[i]] = lookupCount{n.Chunks, n.Tokens}
	}
	return r
}

func printWarm(cmd *cobra.Command, m *client.Match, st *client.State) {
	var t cli.Table
	t.Row("", "chunks", "tokens")
	t.Row("were in DRAM", human.Count(st.Tiers[0].Chunks), human.Count(st.Tiers[0].Tokens))
	for i := 1; i < len(tierTitles); i++ {
		if n := st.Tiers[i]; n.Chunks > 0 || i < 2 {
			t.Row("came from "+tierTitles[i], human.Count(n.Chunks), human.Count(n.Tokens))
		}
	}
	t.Row("in DRAM now", human.Count(st.Ready.Chunks), human.Count(st.Ready.Tokens))
	t.Row("stored", human.Count(max(m.Total.Chunks, st.Ready.Chunks)), human.Count(max(m.Total.Tokens, st.Ready.Tokens)))
	t.Print(cmd.OutOrStdout(), "")
}
