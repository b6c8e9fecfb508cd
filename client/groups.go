package client

import "github.com/kvstored/kvstored/internal/wire"

// GroupKind says which chunks of a group of a hybrid model a prefix needs.
type GroupKind = wire.GroupKind

// The kinds.
const (
	FullGroup   = wire.GroupFull   // all
	WindowGroup = wire.GroupWindow // those with the last Tokens tokens
	LocalGroup  = wire.GroupLocal  // those behind the last multiple of Tokens
	StateGroup  = wire.GroupState  // the last one
)

// Group is one KV cache group of a hybrid model.
type Group struct {
	Space  *Space
	Kind   GroupKind
	Tokens int // of a window and a local group; 0 of others
}

// Need is the chunks of one group that a prefix needs, counted from the start of
// the prompt, and how many of them are in DRAM, on disk and in the remote tier.
type Need struct {
	First, Chunks int
	Tiers         [wire.TierCount]int
}

// Grouped is the longest prefix that all groups can use.
type Grouped struct {
	Tokens int64 // from the start of the prompt; those that were skipped if there is none
	// Run is how far the full groups reach, at least Tokens. Windows and states are
	// worth storing there.
	Run   int64
	Lacks uint64 // a bit for each group that lacks something at Run
	Needs []Need // of each group, at Tokens
	// Lengths are usable ones in tokens, the longest first, where they were asked for.
	Lengths []uint32
}

func groupedOf(m *wire.Grouped) *Grouped {
	if m == nil {
		return nil
	}
	return &Grouped{Tokens: int64(m.Tokens), Run: int64(m.Run), Lacks: m.Lacks, Needs: needsOf(m.Needs), Lengths: m.Lengths.Append(nil)}
}

func needsOf(l wire.Needs) (out []Need) {
	for i := range l.Len() {
		n := l.At(i)
		need := Need{First: int(n.First), Chunks: int(n.Chunks)}
		for t, chunks := range n.Tiers {
			need.Tiers[t] = int(chunks)
		}
		out = append(out, need)
	}
	return out
}

func groupsOf(groups []Group) (out wire.Groups) {
	for _, g := range groups {
		out = out.Add(wire.Group{Space: g.Space.info.Handle, Kind: g.Kind, Tokens: uint32(max(0, g.Tokens))})
	}
	return out
}

// Needs is the chunks of each group that the job has. There are none before all of them
// are ready.
func (j *Job) Needs() []Need {
	j.mu.Lock()
	defer j.mu.Unlock()
	return needsOf(j.mu.needs)
}

// Piece is chunk i of a rank of a group, counted from the start of the prompt, of a job
// with groups. It takes shared memory, and is a view like that of Chunk.
func (j *Job) Piece(group, rank, i int) ([]byte, error) {
	needs := j.Needs()
	if group < 0 || group >= len(needs) || rank < 0 || rank >= j.groupRanks || i < needs[group].First || i >= needs[group].First+needs[group].Chunks {
		return nil, refuse("piece", ErrBadRequest, "job %d has no chunk %d of group %d, rank %d", j.id, i, group, rank)
	}
	if !j.c.Mapped() {
		return nil, refuse("piece", ErrUnsupported, "the chunks of groups take shared memory; use Get with the space of each")
	}
	at := (i-needs[group].First)*j.groupRanks + rank
	for _, n := range needs[:group] {
		at += n.Chunks * j.groupRanks
	}
	j.mu.Lock()
	if err := j.live("piece"); err != nil {
		j.mu.Unlock()
		return nil, err
	}
	r := j.mu.refs[at]
	j.mu.Unlock()
	return j.c.maps.viewed(r)
}

// enough reports whether all that a state calls ready has come; called with the mutex
// held.
func (j *Job) enough(m *wire.JobState) bool {
	if j.groupRanks == 0 {
		return int64(m.Ready.Chunks)*int64(j.ranks) <= int64(len(j.mu.refs))
	}
	refs := 0
	for _, n := range needsOf(m.Needs) {
		refs += n.Chunks * j.groupRanks
	}
	return refs <= len(j.mu.refs)
}
