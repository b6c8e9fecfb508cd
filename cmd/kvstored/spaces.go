package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kvstored/kvstored/internal/admin"
	"github.com/kvstored/kvstored/internal/cli"
	"github.com/kvstored/kvstored/internal/human"
	"github.com/kvstored/kvstored/key"
)

func spacesCommand() *cobra.Command {
	var (
		at     adminFlags
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
			return at.call(func(c *admin.Client) error {
				all := admin.Spaces{Spaces: []admin.Space{}}
				for {
					var page admin.Spaces
					if err := c.Get(cmd.Context(), "/v1/spaces", &page, "after", all.Next); err != nil {
						return err
					}
					all.Spaces = append(all.Spaces, page.Spaces...)
					if all.Next = page.Next; page.Next == "" {
						return printSpaces(cmd.OutOrStdout(), all.Spaces, asJSON)
					}
				}
			})
		},
	}
	at.add(cmd)
	jsonFlag(cmd, &asJSON)
	return cmd
}

func printSpaces(w io.Writer, uses []admin.Space, asJSON bool) error {
	if asJSON {
		return printJSON(w, struct {
			Spaces []admin.Space `json:"spaces"`
		}{uses})
	}
	if len(uses) == 0 {
		fmt.Fprintln(w, "nothing is stored, and no client has opened a space since the daemon started")
		return nil
	}
	// Those of one model together, and those of which little is known last.
	slices.SortStableFunc(uses, func(a, b admin.Space) int {
		of, than := opened(&a), opened(&b)
		return cmp.Or(cmp.Compare(place(&a), place(&b)), cmp.Compare(of.Model, than.Model), cmp.Compare(of.Worker, than.Worker))
	})
	var t cli.Table
	t.Row("model", "open", "chunks", "in DRAM", "on disk")
	for i := range uses {
		u := &uses[i]
		t.Row(title(u), human.Count(u.Connections), human.Count(u.Chunks), human.Bytes(u.HotBytes), human.Bytes(u.DiskBytes))
		t.Row("  " + strings.Join(append([]string{u.Space}, details(u)...), ", "))
	}
	t.Print(w, "")
	return nil
}

// opened is as what a space was opened, as far as that is known.
func opened(u *admin.Space) *admin.Opened {
	if u.Opened == nil {
		return new(admin.Opened)
	}
	return u.Opened
}

// place is where a space comes in the table.
func place(u *admin.Space) int {
	switch {
	case u.Opened != nil:
		return 0
	case u.Front != "":
		return 1
	}
	return 2
}

// title is what a space is of.
func title(u *admin.Space) string {
	switch {
	case u.Front != "":
		return fmt.Sprintf("(values of the %s front end)", brief(u.Front))
	case u.Opened != nil:
		return brief(u.Opened.Model)
	case u.Connections > 0:
		return "(open, but one of too many to remember)"
	}
	return "(not opened since the start)"
}

// details is what tells a space from others of its model.
func details(u *admin.Space) (out []string) {
	s := u.Opened
	if s == nil {
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
	add(s.Method != string(key.SHA256), brief(s.Method))
	for _, name := range slices.Sorted(maps.Keys(s.Tags)) {
		add(true, brief(name)+"="+brief(s.Tags[name]))
	}
	add(s.Salted, "salted")
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
