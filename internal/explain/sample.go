package explain

import "time"

// Groups is how many groups the sessions are divided into.
const Groups = 32

// Sample is a part of what clients have asked for. It names no chunk and no model.
type Sample struct {
	At       time.Time `json:"at"`      // when it was taken
	Since    time.Time `json:"since"`   // its first prompt came; zero where there is none
	Shift    uint8     `json:"shift"`   // one of 1<<shift sessions is in it
	Heads    int       `json:"heads"`   // chunks that belong to no session: all of them are in it
	Dropped  uint64    `json:"dropped"` // prompts that came too fast, since the start
	Tiers    Tiers     `json:"tiers"`
	Measured Measured  `json:"measured"`
	// Parents are the chunks, a tree: number + 1 of the chunk before each, 0 where it is a
	// first one. A chunk comes after its parent.
	Parents []uint32 `json:"parents"`
	Prompts []Prompt `json:"prompts"` // in the order in which they came
}

// Prompt is one that was asked for.
type Prompt struct {
	Last   uint32 `json:"last"`   // number + 1 of its last chunk, or of the last that was stored behind it
	Chunk  uint32 `json:"chunk"`  // tokens of a whole one
	Tokens uint32 `json:"tokens"` // of those that were asked for, and before
	Skip   uint32 `json:"skip"`   // of these, what the engine had
	Millis int64  `json:"ms"`
	Group  int    `json:"group"`  // of its session
	Warmup bool   `json:"warmup"` // fills caches, and does not count
}

// Measured is what the tiers really hit, of all sessions.
type Measured struct {
	Since       time.Time `json:"since"`
	AskedTokens uint64    `json:"asked_tokens"`
	HitTokens   uint64    `json:"hit_tokens"` // in DRAM or on disk
}

// Tiers are the tiers as they are.
type Tiers struct {
	DRAM      Tier    `json:"cpu"`
	Disk      Tier    `json:"disk"` // of no bytes where there is none
	Write     string  `json:"write_mode"`
	UnsafeAge float64 `json:"unsafe_age_seconds"`
}

// alike reports whether two have the same sizes and rules. How many chunks fit changes
// with their length.
func (t Tiers) alike(other *Tiers) bool {
	t.DRAM.Chunks, t.Disk.Chunks = other.DRAM.Chunks, other.Disk.Chunks
	return t == *other
}

// Tier is one of them.
type Tier struct {
	Bytes  int64  `json:"bytes"`
	Chunks int64  `json:"chunks"` // as many of those that it has now, as would fit
	Policy string `json:"policy"`

	ByCompute bool `json:"rank_by_compute"` // its policies that know costs go by these
}
