package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/internal/human"
)

func putCommand() *cobra.Command {
	var (
		socket string
		asJSON bool
		flags  promptFlags
	)
	cmd := &cobra.Command{
		Use:   "put [FILE]",
		Short: "Store a file as the KV of a prompt",
		Long: `Store a file (standard input without one) as the KV of a prompt: cut into as
many equal payloads as the prompt has chunks, the last of which may be smaller.
Chunks that are there already stay as they are. The file may be larger than
memory; what does not come from a regular file is written to a temporary one first.
` + promptHelp,
		Example: `  kvstored put --text "You are a helpful assistant." kv.bin
  kvstored get --text "You are a helpful assistant." | cmp - kv.bin`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			prompt, tokens, err := flags.prompt(cmd.InOrStdin())
			if err != nil {
				return err
			}
			file, err := openPayload(cmd.InOrStdin(), args, flags.file == "-")
			if err != nil {
				return err
			}
			defer file.Close()
			payloads, err := cut(file, file.size, flags.chunks(tokens))
			if err != nil {
				return err
			}
			return withClient(cmd.Context(), socket, client.Options{Space: &flags.space}, func(c *client.Client) error {
				n, err := different(cmd.Context(), c, prompt, payloads)
				sum := putSum{Chunks: payloads.n, Different: n}
				if err == nil && n == 0 { // else half of the prompt would be of another payload
					sum, err = put(cmd.Context(), c, prompt, payloads)
				}
				if err != nil {
					return err
				}
				sum.Tokens = len(tokens)
				return sum.print(cmd.OutOrStdout(), asJSON)
			})
		},
	}
	socketFlag(cmd, &socket)
	jsonFlag(cmd, &asJSON)
	flags.add(cmd)
	return cmd
}

// putSum is what became of a put.
type putSum struct {
	Chunks int `json:"chunks"`
	Tokens int `json:"tokens"`
	Stored int `json:"stored_chunks"`
	Bytes  int `json:"stored_bytes"`
	There  int `json:"present_chunks"` // before, or being stored by another client
	Left   int `json:"refused_chunks"`
	// OverQuota says that the space, not the tier, has no room for the rest.
	OverQuota bool `json:"over_quota"`
	// Different of those that were there hold other bytes, and keep them.
	Different int `json:"different_chunks"`

	why client.Code // the chunks that are left have no room
}

// different counts the chunks that are there and hold other bytes than payloads.
func different(ctx context.Context, c *client.Client, prompt client.Prompt, payloads parts) (n int, err error) {
	_, err = get(ctx, c, prompt, func(p client.Piece) error {
		for i, b := range p.Chunks {
			if p.First+i >= payloads.n {
				return nil
			}
			same, err := payloads.equal(p.First+i, b)
			if err != nil {
				return err
			}
			if !same {
				n++
			}
		}
		return nil
	})
	return n, err
}

// putWait is how long put waits for room, or for the disk to come after.
const putWait = 10 * time.Second

// put stores payloads as the chunks of a prompt, as many at a time as there is
// room for.
func put(ctx context.Context, c *client.Client, prompt client.Prompt, payloads parts) (putSum, error) {
	sum := putSum{Chunks: payloads.n}
	results, err := c.Store(ctx, prompt, client.ReserveOptions{Sizes: payloads.sizes(), Wait: putWait}, nil, payloads.read)
	sum.count(results, payloads)
	var why client.Code
	if errors.As(err, &why) && refusals[why] != "" {
		sum.refuse(payloads.n-len(results), why)
		err = nil
	}
	return sum, err
}

// refusals say why a chunk has no room, and what to do.
var refusals = map[client.Code]string{
	client.ErrNoSpace:    "all of DRAM is in use by others, or leads to these; try later, or raise cpu.capacity",
	client.ErrDeclined:   "what is there is worth more than this chunk; see tenure.md",
	client.ErrOverBudget: "one client may fill budget.leases of DRAM at a time, half of that while others are connected, and what leads to these stays in DRAM until a tier below has it: 0.8 of DRAM at most; raise cpu.capacity",
	client.ErrOverQuota:  "all that the quota of its space allows is in use, or leads to it; see spaces.quota",
}

// refuse notes that n chunks have no room.
func (s *putSum) refuse(n int, why client.Code) {
	s.Left += n
	s.why = why
	s.OverQuota = why == client.ErrOverQuota
}

// count adds the results of the first payloads.
func (s *putSum) count(results []client.Stored, payloads parts) {
	for i, r := range results {
		switch r.Code {
		case client.ResultStored:
			s.Stored++
			s.Bytes += int(payloads.size(i))
		case client.ResultDiffers:
			s.Different++
		default: // the same bytes, or another client is storing them
			s.There++
		}
	}
}

func (s *putSum) print(w io.Writer, asJSON bool) error {
	if asJSON {
		if err := printJSON(w, s); err != nil {
			return err
		}
	} else {
		fmt.Fprintf(w, "stored %d of %s (%s)", s.Stored, human.Plural(s.Chunks, "chunk"), human.Bytes(s.Bytes))
		if s.There > 0 {
			fmt.Fprintf(w, ", %d there already", s.There)
		}
		fmt.Fprintln(w)
	}
	if s.Different > 0 {
		return fmt.Errorf("other bytes were stored before for %s of this prompt, and stay; delete them first, or use another --salt", human.Plural(s.Different, "chunk"))
	}
	if s.Left > 0 {
		return fmt.Errorf("no room for %s: %s", human.Plural(s.Left, "chunk"), refusals[s.why])
	}
	return nil
}
