package client

import (
	"cmp"
	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/key"
)

// Space is a space opened on a connection.
type Space struct{ info wire.SpaceInfo }

// ID is the digest that names the space everywhere.
func (s *Space) ID() key.SpaceID { return s.info.ID }

// ChunkTokens is the number of tokens in every chunk but a last one.
func (s *Space) ChunkTokens() int { return int(s.info.ChunkTokens) }

// Prompt says which chunks a call is about. Every chunk number and every count
// in calls and results starts after SkipChunks. The slices that it was made from
// are borrowed, not copied: leave them alone while calls with the prompt run.
type Prompt struct {
	Space      *Space // nil: the one given to Dial
	SaveUnfull bool   // a last chunk of fewer tokens counts too
	SkipChunks int    // leading chunks left out; they only give the position
	// Alone says that the chunks, given as hashes, are no prompt: each is the
	// first of its own, as pages are that an engine hands over without their
	// order. They are only named together so that one call is about many.
	Alone bool
	// Grain is the tokens between two hashes, for calls with groups some of which have
	// shorter chunks than the first: their least common part. It divides the chunks of
	// all groups, and lengths has it for each hash. 0: each chunk has a hash.
	Grain int

	form    wire.Form
	tokens  []uint32
	width   int
	hashes  []byte
	lengths []uint32
	ref     uint64
}

// Tokens is a prompt of token ids. The daemon computes the hashes.
func Tokens(tokens []uint32) Prompt { return Prompt{form: wire.FormTokens, tokens: tokens} }

// Hashes is a prompt whose chain hashes the engine computed: raw holds one of
// width bytes (8, 16 or 32) for each chunk, lengths the tokens of each chunk.
func Hashes(width int, raw []byte, lengths []uint32) Prompt {
	return Prompt{form: wire.FormHashes, width: width, hashes: raw, lengths: lengths}
}

// Chain is a prompt whose chain was built with package key. Its hashes are copied.
func Chain(c *key.Chain) Prompt {
	raw := make([]byte, 0, len(c.Hashes)*len(key.Hash{}))
	for i := range c.Hashes {
		raw = append(raw, c.Hashes[i][:]...)
	}
	p := Hashes(len(key.Hash{}), raw, c.Tokens)
	p.SkipChunks, p.SaveUnfull, p.Alone = c.Skip, true, c.Alone
	return p
}

// chain is p on the wire.
func (c *Client) chain(op wire.Op, p *Prompt) (wire.Chain, error) {
	ch := wire.Chain{Form: p.form, SaveUnfull: p.SaveUnfull, Alone: p.Alone, ID: p.ref, Skip: uint32(p.SkipChunks)}
	if p.SkipChunks < 0 || p.SkipChunks > key.MaxChunks {
		return ch, refuse(op.String(), ErrBadRequest, "skip of %d chunks: use 0 to %d", p.SkipChunks, key.MaxChunks)
	}
	if p.form == wire.FormRef {
		return ch, nil
	}
	space, err := c.spaceOr(op, p.Space)
	if err != nil {
		return ch, err
	}
	ch.Space = space.info.Handle
	if p.form == wire.FormTokens {
		ch.Tokens = wire.ViewU32s(p.tokens)
		return ch, nil
	}
	full := space.info.ChunkTokens
	if p.Grain > 0 {
		full = uint32(p.Grain)
	}
	switch {
	case p.width != 8 && p.width != 16 && p.width != 32:
		return ch, refuse(op.String(), ErrBadRequest, "hashes of %d bytes: use 8, 16 or 32", p.width)
	case !wholeButLast(p.lengths, full):
		return ch, refuse(op.String(), ErrBadRequest, "chunks of other lengths than %d tokens: fewer has only the last one", full)
	case len(p.hashes) != p.width*len(p.lengths):
		return ch, refuse(op.String(), ErrBadRequest, "%d bytes of hashes for %d chunks of %d each", len(p.hashes), len(p.lengths), p.width)
	case len(p.lengths) > key.MaxChunks:
		return ch, refuse(op.String(), ErrTooLarge, "%d chunks: use at most %d", len(p.lengths), key.MaxChunks)
	}
	ch.Width, ch.Hashes = uint16(p.width), p.hashes
	if n := len(p.lengths); n > 0 && p.lengths[n-1] != full {
		ch.LastTokens = p.lengths[n-1]
	}
	return ch, nil
}

// grain is Grain on the wire.
func (p *Prompt) grain() uint32 { return uint32(max(0, p.Grain)) }

// wholeButLast reports whether chunks of these lengths are full, but for the last,
// which has some tokens.
func wholeButLast(lengths []uint32, full uint32) bool {
	for i, n := range lengths {
		if n != full && (i < len(lengths)-1 || n == 0 || n > full) {
			return false
		}
	}
	return true
}

func (c *Client) spaceOr(op wire.Op, s *Space) (*Space, error) {
	if s = cmp.Or(s, c.space); s == nil {
		return nil, refuse(op.String(), ErrUnknownSpace, "no space: give one to Dial, or to OpenSpace and set it in the prompt")
	}
	return s, nil
}

// chunks is the number of chunks of p after the skipped ones.
func (c *Client) chunks(p *Prompt) (int, error) {
	switch p.form {
	case wire.FormHashes:
		return len(p.lengths) - p.SkipChunks, nil
	case wire.FormRef:
		return 0, refuse("reserve", ErrBadRequest, "the connection has no shared memory: say how many chunks with Count or Sizes")
	}
	space, err := c.spaceOr(wire.OpReserve, p.Space)
	if err != nil {
		return 0, err
	}
	size := max(1, space.ChunkTokens())
	n := len(p.tokens) / size
	if p.SaveUnfull && len(p.tokens)%size != 0 {
		n++
	}
	return n - p.SkipChunks, nil
}

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
