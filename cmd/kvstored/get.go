package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/kvstored/kvstored/client"
)

func getCommand() *cobra.Command {
	var (
		socket, output string
		flags          promptFlags
	)
	cmd := &cobra.Command{
		Use:   "get",
		Short: "Write out the stored KV of a prompt",
		Long: `Write the payloads of the longest stored prefix of a prompt, one after the other,
to standard output or a file. Nothing is written, and the exit code is 1, if
not even the first chunk is there; it is 1 too if less could be got than is stored.
A prompt longer than what one client may lease is got in parts.
` + promptHelp,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			prompt, tokens, err := flags.prompt(cmd.InOrStdin())
			if err != nil {
				return err
			}
			return withClient(cmd.Context(), socket, client.Options{Space: &flags.space}, func(c *client.Client) error {
				chunks, state, err := get(cmd.Context(), c, prompt)
				if err != nil {
					return err
				}
				if state.Ready.Chunks == 0 {
					return nothing(state.Reason)
				}
				payload := bytes.Join(chunks, nil)
				if err := writePayload(cmd.OutOrStdout(), output, payload); err != nil {
					return err
				}
				fmt.Fprintf(cmd.ErrOrStderr(), "%s of %s, %s of %s, %s%s\n", comma(state.Ready.Chunks), plural(flags.chunks(tokens), "chunk"),
					comma(state.Ready.Tokens), plural(len(tokens), "token"), size(len(payload)), why(state.Reason))
				switch state.Reason {
				case client.Complete, client.StoppedGap:
					return nil
				case client.StoppedCorrupt:
					return errors.New("the chunk after these was damaged, and is deleted; put the prompt again")
				}
				return fmt.Errorf("more is stored than was got: %s", state.Reason)
			})
		},
	}
	socketFlag(cmd, &socket)
	flags.add(cmd)
	cmd.Flags().StringVarP(&output, "output", "o", "", "file to write; standard output without one")
	return cmd
}

// nothing says why not even the first chunk could be got.
func nothing(r client.Reason) error {
	switch r {
	case client.Complete, client.StoppedGap:
		return errors.New("nothing is stored for this prompt; were model, dtype, chunk tokens and salt the same?")
	case client.StoppedCorrupt:
		return errors.New("what was stored for this prompt was damaged, and is deleted; put it again")
	}
	return fmt.Errorf("what is stored for this prompt could not be got: %s", r)
}

// why tells what ended a prefix before its prompt, if anything did.
func why(r client.Reason) string {
	if r == client.Complete {
		return ""
	}
	return "; ended by " + r.String()
}

// get copies the ready prefix of a prompt, as much at a time as one client may
// lease.
func get(ctx context.Context, c *client.Client, prompt client.Prompt) (out [][]byte, all client.State, err error) {
	for {
		part, state, err := getLeased(ctx, c, prompt)
		if err != nil {
			return nil, client.State{}, err
		}
		out = append(out, part...)
		all.Ready.Chunks += state.Ready.Chunks
		all.Ready.Tokens += state.Ready.Tokens
		all.Reason = state.Reason
		if len(part) == 0 || state.Reason != client.StoppedOverBudget {
			return out, all, nil
		}
		prompt.SkipChunks += len(part)
	}
}

// getLeased copies what one lease holds. The bytes are good: the lease held
// until they were copied.
func getLeased(ctx context.Context, c *client.Client, prompt client.Prompt) ([][]byte, client.State, error) {
	job, err := c.Prefetch(ctx, prompt, client.PrefetchOptions{Policy: client.WaitComplete})
	if err != nil {
		return nil, client.State{}, err
	}
	state, err := job.Wait(ctx, client.All)
	if err != nil {
		return nil, state, err
	}
	var out [][]byte
	for i := range int(state.Ready.Chunks) {
		p, err := job.Chunk(ctx, i)
		if err != nil {
			return nil, state, err
		}
		out = append(out, bytes.Clone(p)) // a view, which ends with the lease
	}
	return out, state, job.Release(ctx)
}

func writePayload(stdout io.Writer, path string, p []byte) error {
	if path != "" && path != "-" {
		return os.WriteFile(path, p, 0o600)
	}
	_, err := stdout.Write(p)
	return err
}
