package server

import (
	"fmt"

	"github.com/kvstored/kvstored/internal/missing"
	"github.com/kvstored/kvstored/key"
)

// Miss is why a prompt was not had to its end, or is not there to its end now.
type Miss struct {
	UID      uint32
	Space    key.SpaceID
	Model    string // "" where the space was not opened since the start
	LookupID string // of a prompt that was asked for under one
	Chunks   int
	Asked    uint64 // tokens
	Got      uint64 // of these
	Chunk    int    // that is missing; Chunks where none is, or that is not known
	Partial  bool   // it is the last of tokens that an operator gave, and not a whole one
	Why      missing.Absence
	Nearest  []Nearest // spaces that have the chunk, where no other reason is known
}

// Nearest is another space that has a missing chunk.
type Nearest struct {
	Space   key.SpaceID
	Model   string
	Differs []Difference // none where one of the two spaces was not opened since the start
}

// Difference is a field that two spaces differ in, with what it is in each.
type Difference struct{ Field, Here, There string }

// mostNearest bounds how many spaces a Miss names.
const mostNearest = 8

// differences are the fields that two spaces differ in. Spaces with other salts or methods
// have no chunk in common.
func differences(a, b *key.Space) (out []Difference) {
	for _, f := range []Difference{
		{"model", a.Model, b.Model},
		{"revision", a.Revision, b.Revision},
		{"lora", a.LoRA, b.LoRA},
		{"world", fmt.Sprint(a.World), fmt.Sprint(b.World)},
		{"worker", fmt.Sprint(a.Worker), fmt.Sprint(b.Worker)},
		{"dtype", a.DType, b.DType},
		{"chunk_tokens", fmt.Sprint(a.ChunkTokens), fmt.Sprint(b.ChunkTokens)},
		{"method", string(a.Method), string(b.Method)},
		{"group", a.Group, b.Group},
		{"tags", tagsText(a.Tags), tagsText(b.Tags)},
	} {
		if f.Here != f.There {
			out = append(out, f)
		}
	}
	return out
}

func tagsText(tags []key.Tag) (s string) {
	for _, t := range tags {
		s += t.Name + "=" + t.Value + " "
	}
	return s
}
