package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/internal/human"
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
				stored, err := c.Lookup(cmd.Context(), prompt, 0)
				if err != nil {
					return err
				}
				to := &payloadFile{stdout: cmd.OutOrStdout(), path: output}
				all, err := get(cmd.Context(), c, prompt, to.write)
				if err := errors.Join(err, to.close()); err != nil {
					return err
				}
				if all.Ready.Chunks == 0 {
					return nothing(all.Reason)
				}
				fmt.Fprintf(cmd.ErrOrStderr(), "%s of %s, %s of %s, %s%s\n", human.Count(all.Ready.Chunks), human.Plural(flags.chunks(tokens), "chunk"),
					human.Count(all.Ready.Tokens), human.Plural(len(tokens), "token"), human.Bytes(to.written), why(all.Reason))
				if all.Ready.Chunks < stored.Total.Chunks && all.Reason == client.StoppedGap {
					return fmt.Errorf("of %s that were stored the others went while these were got: the tiers have no room for the whole prompt", human.Plural(int(stored.Total.Chunks), "chunk"))
				}
				switch all.Reason {
				case client.Complete, client.StoppedGap:
					return nil
				case client.StoppedCorrupt:
					return errors.New("the chunk after these was damaged, and is deleted; put the prompt again")
				}
				return fmt.Errorf("more is stored than was got: %s", all.Reason.String())
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
		return errors.New(nothingStored)
	case client.StoppedCorrupt:
		return errors.New("what was stored for this prompt was damaged, and is deleted; put it again")
	}
	return fmt.Errorf("what is stored for this prompt could not be got: %s", r.String())
}

// why tells what ended a prefix before its prompt, if anything did.
func why(r client.Reason) string {
	if r == client.Complete {
		return ""
	}
	return "; ended by " + r.String()
}

// get hands the stored prefix of a prompt over, piece by piece, as much at a
// time as one client may lease.
func get(ctx context.Context, c *client.Client, prompt client.Prompt, take func(client.Piece) error) (all client.State, err error) {
	for piece, err := range c.Pieces(ctx, prompt, client.PrefetchOptions{Policy: client.WaitComplete}) {
		if err == nil && len(piece.Chunks) > 0 {
			err = take(piece)
		}
		if err != nil {
			return all, err
		}
		all.Ready.Chunks += uint32(len(piece.Chunks))
		all.Ready.Tokens += uint64(piece.Tokens)
		all.Reason = piece.Reason
	}
	return all, nil
}

// payloadFile is where payloads go: a file that is made for the first, or
// standard output.
type payloadFile struct {
	stdout  io.Writer
	path    string
	file    *os.File
	written int
}

func (f *payloadFile) write(p client.Piece) (err error) {
	to := f.stdout
	if f.path != "" && f.path != "-" {
		if f.file == nil {
			if f.file, err = os.OpenFile(f.path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600); err != nil {
				return err
			}
		}
		to = f.file
	}
	for _, b := range p.Chunks {
		n, err := to.Write(b)
		if f.written += n; err != nil {
			return err
		}
	}
	return nil
}

func (f *payloadFile) close() error {
	if f.file == nil {
		return nil
	}
	return f.file.Close()
}
