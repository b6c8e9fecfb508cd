package main

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/key"
)

// eventLine is one event as a line of JSON; field names are stable.
type eventLine struct {
	Time   string `json:"time"`
	Seq    uint64 `json:"seq"`
	Kind   string `json:"kind"` // stored, removed, cleared, lost, complete
	Tier   string `json:"tier,omitempty"`
	Space  string `json:"space,omitempty"`
	Model  string `json:"model,omitempty"`
	Hash   string `json:"hash,omitempty"`
	Parent string `json:"parent,omitempty"`
	Tokens uint32 `json:"tokens,omitempty"`
}

func eventsCommand() *cobra.Command {
	var (
		socket       string
		asJSON, know bool
	)
	cmd := &cobra.Command{
		Use:   "events",
		Short: "Print what the tiers come to have and lose",
		Long: `Print what becomes resident in each tier, and what leaves it, until it is
interrupted. The daemon must have events.enabled in its configuration. A line that
says "lost" means that this command was too slow, or that the daemon has started
anew: what came before it may be stale. Tokens of chunks are never printed.`,
		Example: `  kvstored events --snapshot           # what is there now, and then what changes
  kvstored events --json | head -100`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			p := &eventPrinter{w: cmd.OutOrStdout(), spaces: make(map[key.SpaceID]key.Space)}
			if asJSON {
				p.json = json.NewEncoder(p.w)
			}
			return withClient(cmd.Context(), socket, client.Options{Inline: true}, func(c *client.Client) error {
				return c.Events(cmd.Context(), client.EventsOptions{From: client.EventsNow, Snapshot: know}, p.batch)
			})
		},
	}
	socketFlag(cmd, &socket)
	cmd.Flags().BoolVar(&know, "snapshot", false, "begin with all that is there")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object a line")
	return cmd
}

// eventPrinter prints batches.
type eventPrinter struct {
	w      io.Writer
	json   *json.Encoder // nil: for people
	spaces map[key.SpaceID]key.Space
}

func (p *eventPrinter) batch(b *client.EventBatch) error {
	maps.Copy(p.spaces, b.Spaces)
	at := eventLine{Time: b.Time.Format(time.RFC3339Nano), Seq: b.Seq}
	if b.Lost {
		at.Kind = "lost"
		if err := p.line(&at); err != nil {
			return err
		}
	}
	for i := range b.Events {
		l := p.lineOf(&b.Events[i])
		l.Time, l.Seq = at.Time, at.Seq
		if err := p.line(&l); err != nil {
			return err
		}
	}
	if b.Complete {
		at.Kind = "complete"
		return p.line(&at)
	}
	return nil
}

func (p *eventPrinter) lineOf(e *client.Event) eventLine {
	l := eventLine{Kind: e.Kind.String()}
	if e.Kind == client.EventCleared {
		return l
	}
	sp := p.spaces[e.Space]
	l.Tier, l.Space, l.Model, l.Hash = e.Tier.String(), e.Space.String(), sp.Model, hex.EncodeToString(e.Hash[:])
	if e.Kind == client.EventStored {
		if l.Tokens = e.Tokens; l.Tokens == 0 {
			l.Tokens = uint32(sp.ChunkTokens)
		}
		if e.Parent != (key.Hash{}) {
			l.Parent = hex.EncodeToString(e.Parent[:])
		}
	}
	return l
}

func (p *eventPrinter) line(l *eventLine) error {
	if p.json != nil {
		return p.json.Encode(l)
	}
	text := fmt.Sprintf("%s %8d %-8s", l.Time, l.Seq, l.Kind)
	if l.Hash != "" {
		text += fmt.Sprintf(" %-6s %s/%s", l.Tier, l.Space[:8], l.Hash)
	}
	if l.Tokens > 0 {
		text += fmt.Sprintf(" %d tokens of %s", l.Tokens, printable(l.Model))
	}
	_, err := fmt.Fprintln(p.w, text)
	return err
}
