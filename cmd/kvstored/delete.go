package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/internal/human"
)

func deleteCommand() *cobra.Command {
	var (
		socket string
		asJSON bool
		dry    bool
		flags  promptFlags
	)
	cmd := &cobra.Command{
		Use:   "delete",
		Short: "Forget the stored KV of a prompt",
		Long: `Forget all chunks of a prompt in every tier, also those that other prompts share
with it. A prompt that goes on after it is cut short until they are stored again.
--dry-run only says how many there are. Where nothing was stored the exit code is 1.
` + promptHelp,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			prompt, _, err := flags.prompt(cmd.InOrStdin())
			if err != nil {
				return err
			}
			return withClient(cmd.Context(), socket, client.Options{Space: &flags.space, Inline: true}, func(c *client.Client) error {
				if dry {
					return countPrompt(cmd, c, prompt, asJSON)
				}
				n, err := c.DeletePrompt(cmd.Context(), prompt)
				if err != nil {
					return err
				}
				if asJSON {
					err := printJSON(cmd.OutOrStdout(), struct {
						Chunks uint64 `json:"deleted_chunks"`
					}{n})
					if err != nil || n > 0 {
						return err
					}
				}
				if n == 0 {
					return errors.New(nothingStored)
				}
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "deleted %s\n", human.Plural(int(n), "chunk"))
				return err
			})
		},
	}
	socketFlag(cmd, &socket)
	jsonFlag(cmd, &asJSON)
	cmd.Flags().BoolVar(&dry, "dry-run", false, "only say how many chunks are there; nothing is forgotten")
	flags.add(cmd)
	return cmd
}

// countPrompt says how many leading chunks of a prompt are stored.
func countPrompt(cmd *cobra.Command, c *client.Client, p client.Prompt, asJSON bool) error {
	m, err := c.Lookup(cmd.Context(), p, 0)
	if err != nil {
		return err
	}
	if asJSON {
		err := printJSON(cmd.OutOrStdout(), struct {
			Chunks uint32 `json:"stored_chunks"`
			DryRun bool   `json:"dry_run"`
		}{m.Total.Chunks, true})
		if err != nil || m.Total.Chunks > 0 {
			return err
		}
	}
	if m.Total.Chunks == 0 {
		return errors.New(nothingStored)
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s would be deleted, and what is stored behind a hole\n", human.Plural(int(m.Total.Chunks), "chunk"))
	return err
}

// nothingStored is said where a prompt has no chunks, or its space is not the one meant.
const nothingStored = "nothing is stored for this prompt; were model, dtype, chunk tokens and salt the same?"
