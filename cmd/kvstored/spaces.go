package main

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/internal/human"
	"github.com/kvstored/kvstored/key"
)

type spacesResult struct {
	Spaces []spaceRow `json:"spaces"`
}

type spaceRow struct {
	Space       string        `json:"space"`
	Chunks      uint64        `json:"chunks"` // known, in any tier
	HotBytes    uint64        `json:"dram_bytes"`
	DiskBytes   uint64        `json:"disk_bytes"`
	Connections uint32        `json:"connections"`     // that have it open
	Front       string        `json:"front,omitempty"` // the front end whose values these are
	Opened      *spaceDetails `json:"opened"`          // null: not since the daemon started
}

type spaceDetails struct {
	Model       string            `json:"model"`
	Revision    string            `json:"revision,omitempty"`
	LoRA        string            `json:"lora,omitempty"`
	World       int               `json:"world"`
	Worker      int               `json:"worker"`
	DType       string            `json:"dtype"`
	ChunkTokens int               `json:"chunk_tokens"`
	Method      string            `json:"method"`
	Group       string            `json:"group,omitempty"`
	Salted      bool              `json:"salted"`
	Tags        map[string]string `json:"tags,omitempty"`
}

func spacesCommand() *cobra.Command {
	var (
		socket string
		asJSON bool
	)
	cmd := &cobra.Command{
		Use:   "spaces",
		Short: "List the spaces, which models they are of, and what is stored of each",
		Long: `List every space of which this daemon knows something stored, or that a client
has opened since it started: what purge takes, and what it stands for. A space is
all that must be equal for KV to be exchangeable: besides model, dtype and chunk
tokens the rank, the revision, an adapter, and the engine's tags. Only the id is
stored; so for a space that nobody has opened since the start there is nothing but
that. What other machines have in a bucket is not counted until it is used here.
It takes an admin.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withClient(cmd.Context(), socket, client.Options{Inline: true}, func(c *client.Client) error {
				uses, err := c.Spaces(cmd.Context())
				if err != nil {
					return err
				}
				return printSpaces(cmd.OutOrStdout(), uses, asJSON)
			})
		},
	}
	socketFlag(cmd, &socket)
	jsonFlag(cmd, &asJSON)
	return cmd
}

func printSpaces(w io.Writer, uses []client.SpaceUse, asJSON bool) error {
	if asJSON {
		r := spacesResult{Spaces: []spaceRow{}}
		for i := range uses {
			r.Spaces = append(r.Spaces, rowOf(&uses[i]))
		}
		return printJSON(w, r)
	}
	if len(uses) == 0 {
		fmt.Fprintln(w, "nothing is stored, and no client has opened a space since the daemon started")
		return nil
	}
	// Those of one model together, and those of which little is known last.
	slices.SortStableFunc(uses, func(a, b client.SpaceUse) int {
		return cmp.Or(cmp.Compare(place(a.Kind), place(b.Kind)), cmp.Compare(a.Space.Model, b.Space.Model), cmp.Compare(a.Space.Worker, b.Space.Worker))
	})
	var t table
	t.row("model", "open", "chunks", "in DRAM", "on disk")
	for i := range uses {
		u := &uses[i]
		t.row(title(u), human.Count(u.Connections), human.Count(u.Chunks), human.Bytes(u.HotBytes), human.Bytes(u.DiskBytes))
		t.row("  " + strings.Join(append([]string{hex.EncodeToString(u.ID[:])}, details(u)...), ", "))
	}
	t.print(w, "")
	return nil
}

// place is where spaces of a kind come in the table.
func place(k client.SpaceKind) int {
	switch k {
	case client.SpaceOpened:
		return 0
	case client.SpaceFront:
		return 1
	}
	return 2
}

func rowOf(u *client.SpaceUse) spaceRow {
	r := spaceRow{Space: hex.EncodeToString(u.ID[:]), Chunks: u.Chunks, HotBytes: u.HotBytes, DiskBytes: u.DiskBytes, Connections: u.Connections, Front: u.Front}
	if s := &u.Space; u.Kind == client.SpaceOpened {
		r.Opened = &spaceDetails{
			Model: s.Model, Revision: s.Revision, LoRA: s.LoRA, World: s.World, Worker: s.Worker, DType: s.DType,
			ChunkTokens: s.ChunkTokens, Method: string(s.Method), Group: s.Group, Salted: s.SaltDigest != key.Hash{},
			Tags: make(map[string]string),
		}
		for _, t := range s.Tags {
			r.Opened.Tags[t.Name] = t.Value
		}
	}
	return r
}

// title is what a space is of.
func title(u *client.SpaceUse) string {
	switch {
	case u.Kind == client.SpaceFront:
		return fmt.Sprintf("(values of the %s front end)", brief(u.Front))
	case u.Kind == client.SpaceOpened:
		return brief(u.Space.Model)
	case u.Connections > 0:
		return "(open, but one of too many to remember)"
	}
	return "(not opened since the start)"
}

// details is what tells a space from others of its model.
func details(u *client.SpaceUse) (out []string) {
	s := &u.Space
	if u.Kind != client.SpaceOpened {
		return nil
	}
	add := func(when bool, what string) {
		if when {
			out = append(out, what)
		}
	}
	add(s.DType != "", brief(s.DType))
	add(true, human.Plural(s.ChunkTokens, "token")+" a chunk")
	add(s.World > 1, fmt.Sprintf("rank %d of %d", s.Worker, s.World))
	revision := s.Revision
	if len(revision) == 40 { // a commit's; its beginning will do
		revision = revision[:12]
	}
	add(revision != "", "revision "+brief(revision))
	add(s.LoRA != "", "LoRA "+brief(s.LoRA))
	add(s.Group != "", "group "+brief(s.Group))
	add(s.Method != key.SHA256, brief(string(s.Method)))
	for _, t := range s.Tags {
		add(true, brief(t.Name)+"="+brief(t.Value))
	}
	add(s.SaltDigest != key.Hash{}, "salted")
	return out
}

// brief is a text of a client's, cut and printable.
func brief(s string) string {
	const most = 48
	if r := []rune(s); len(r) > most {
		s = string(r[:most-3]) + "..."
	}
	return printable(s)
}
