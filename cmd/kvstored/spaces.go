package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kvstored/kvstored/internal/admin"
	"github.com/kvstored/kvstored/internal/human"
	"github.com/kvstored/kvstored/key"
)

func spacesCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "spaces",
		Short: "List the spaces, which models they are of, and what is stored of each",
		Long: `List every space of which this daemon knows something stored, or that a client
has opened since it started: what forget --space takes, and what it stands for. A space
is all that must be equal for KV to be exchangeable: besides model, dtype and chunk
tokens the rank, the revision, an adapter, and the engine's tags. Only the id is
stored; so for a space that nobody has opened since the start there is nothing but
that. What other machines have in a bucket is not counted until it is used here.
It takes an admin.`,
		Args: cobra.NoArgs,
	}
	asking(cmd, func(ctx context.Context, c *admin.Client, _ []string) (*spaceList, error) {
		all := &spaceList{Spaces: []admin.Space{}}
		for after := ""; ; {
			var page admin.Spaces
			if err := c.Get(ctx, "/v1/spaces", &page, "after", after); err != nil {
				return nil, err
			}
			all.Spaces = append(all.Spaces, page.Spaces...)
			if after = page.Next; after == "" {
				return all, nil
			}
		}
	}, printSpaces)
	return cmd
}

// spaceList is all pages of spaces.
type spaceList struct {
	Spaces []admin.Space `json:"spaces"`
}

func printSpaces(w io.Writer, list *spaceList) error {
	uses := list.Spaces
	if len(uses) == 0 {
		fmt.Fprintln(w, "nothing is stored, and no client has opened a space since the daemon started")
		return nil
	}
	// Those of one model together, and those of which little is known last.
	slices.SortStableFunc(uses, func(a, b admin.Space) int {
		of, than := opened(&a), opened(&b)
		return cmp.Or(cmp.Compare(place(&a), place(&b)), cmp.Compare(of.Model, than.Model), cmp.Compare(of.Worker, than.Worker))
	})
	var t human.Table
	t.Row("model", "open", "chunks", "in DRAM", "on disk")
	for i := range uses {
		u := &uses[i]
		t.Row(title(u), human.Count(u.Connections), human.Count(u.Chunks), human.Bytes(u.HotBytes), human.Bytes(u.DiskBytes))
		t.Row("  " + strings.Join(append([]string{u.Space}, details(u)...), ", "))
	}
	t.Print(w, "")
	return nil
}

// nameLetters is how much of a client's text is shown of a space.
const nameLetters = 48

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
		return fmt.Sprintf("(values of the %s front end)", short(u.Front, nameLetters))
	case u.Opened != nil:
		return short(u.Opened.Model, nameLetters)
	case u.Connections > 0:
		return "(open, but one of too many to remember)"
	}
	return "(not opened since the start)"
}

// details is what tells a space from others of its model.
func details(u *admin.Space) (out []string) {
	add := func(when bool, what string) {
		if when {
			out = append(out, what)
		}
	}
	add(!u.Distrusted.IsZero(), "distrusted")
	s := u.Opened
	if s == nil {
		return out
	}
	add(s.DType != "", short(s.DType, nameLetters))
	add(true, human.Plural(s.ChunkTokens, "token")+" a chunk")
	add(s.World > 1, fmt.Sprintf("rank %d of %d", s.Worker, s.World))
	revision := s.Revision
	if len(revision) == 40 { // a commit's; its beginning will do
		revision = revision[:12]
	}
	add(revision != "", "revision "+short(revision, nameLetters))
	add(s.LoRA != "", "LoRA "+short(s.LoRA, nameLetters))
	add(s.Group != "", "group "+short(s.Group, nameLetters))
	add(s.Method != string(key.SHA256), short(s.Method, nameLetters))
	for _, name := range slices.Sorted(maps.Keys(s.Tags)) {
		add(true, short(name, nameLetters)+"="+short(s.Tags[name], nameLetters))
	}
	add(s.Salted, "salted")
	return out
}
