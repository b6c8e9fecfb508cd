package store

import (
	"context"
	"encoding/binary"
	"slices"
	"sync"

	"github.com/kvstored/kvstored/internal/index"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

// Family is one prompt in every space that it is asked for in: of each group of a model one
// for each rank.
type Family struct {
	Groups index.Family // checked; see Plain
	// Chains are those of each group: one for each rank, equal but for their
	// spaces. Groups of one chunk size have the same hashes. Those that are not full
	// are Alone: of a group that has one chunk in sixty the index knows no other.
	Chains [][]key.Chain
	Skip   int // leading tokens that the caller has, with what each group needs there
}

// plainGroups is one full group, whose chunks have the tokens that their chain says: a shorter
// last one is an end like the others.
var plainGroups = index.Family{{Kind: index.Full}}

// Plain is a prompt of a model without groups, in the spaces of its ranks.
func Plain(ranks []key.Chain) *Family {
	return &Family{Groups: plainGroups, Chains: [][]key.Chain{ranks}, Skip: int(ranks[0].TokensIn(0, ranks[0].Skip))}
}

// IsPlain reports whether Plain has made it.
func (f *Family) IsPlain() bool { return f.Groups[0].Chunk == 0 }

// Piece is a chunk of one rank of one group.
type Piece struct{ Group, Rank, Chunk int }

// Need is the chunks From..To of a group that a prefix needs.
type Need struct {
	From, To int
	In       [tier.Places]int
	at       []uint8 // the farthest place of each, over the ranks, as a bit; nil: DRAM has all
}

// At is the farthest place of a chunk that is needed, over the ranks.
func (n *Need) At(chunk int) tier.Set {
	if n.at == nil {
		return tier.Of(tier.CPU)
	}
	return tier.Set(n.at[chunk-n.From])
}

// Plan is the longest prefix of a Family that is usable: what each group needs at its end is
// there, for every rank.
type Plan struct {
	Match        // of the prefix, in chunks of the first group behind those skipped
	End   int    // tokens that are usable, skipped ones included; Family.Skip if there are none
	Run   int    // tokens as far as the full groups reach, in steps of Groups.Grid
	Next  int    // the first chunk of the first group behind Run
	Lacks uint64 // a bit for each group that lacks something at Run
	Needs []Need // of each group, at End
	Runs  []int  // by rank, of a plain prompt of several: Next for it alone
}

// Plan finds the longest usable prefix of at most most tokens, of a plain prompt of all. Pieces that
// are in lost count as missing. Memory only, but that the full groups are asked for
// as Match does it while a tier is still being scanned. The length is one that a client
// wants: its needs are kept before those of no such length.
func (l *Lookups) Plan(ctx context.Context, f *Family, search tier.Set, most int, lost map[Piece]struct{}) (Plan, error) {
	m, err := l.Probe(ctx, f, search, most, lost)
	if err == nil {
		l.learn(f, &m)
	}
	return m, err
}

// Probe is Plan for a length that is only looked at.
func (l *Lookups) Probe(ctx context.Context, f *Family, search tier.Set, most int, lost map[Piece]struct{}) (Plan, error) {
	if f.IsPlain() {
		return l.probePlain(ctx, f, search)
	}
	s := familySearches.Get().(*familySearch)
	defer s.give()
	s.start(ctx, l, f, search, lost)
	m := Plan{Run: most}
	for g := range f.Groups {
		n, err := s.run(g)
		if err != nil {
			return m, err
		}
		m.Run = min(m.Run, n)
	}
	grid := f.Groups.Grid()
	if m.Run = max(m.Run/grid*grid, 0); m.Run <= f.Skip {
		m.Run = f.Skip
	}
	found := s.words.Longest(f.Groups, f.Skip, m.Run, s)
	m.End, m.Lacks, m.Next = found.Tokens, found.Lacks, m.Run/f.Groups[0].Chunk
	m.Needs = s.needs(m.End)
	m.Match = f.matchOf(&m)
	return m, nil
}

// matchOf is a plan to a client that counts chunks of the first group.
func (f *Family) matchOf(m *Plan) (out Match) {
	need := &m.Needs[0]
	each := uint64((m.End - f.Skip) / max(1, need.To-need.From)) // the state of a model without full groups stands for all
	count := func(n int) Count { return Count{n, uint64(n) * each} }
	out.Count = count(need.To - need.From)
	for p := range out.In {
		out.In[p] = count(need.In[p])
	}
	return out
}

// probePlain is Probe for a plain prompt.
func (l *Lookups) probePlain(ctx context.Context, f *Family, search tier.Set) (m Plan, err error) {
	var at []uint8
	chains, mask := f.Chains[0], search&^l.levels.off()
	c := &chains[0]
	if len(chains) == 1 {
		sc := borrow(c.Len())
		defer sc.give()
		known, err := l.locateOrAsk(ctx, c, sc)
		if err != nil {
			return m, err
		}
		at = sc.at[:known]
	} else {
		s := familySearches.Get().(*familySearch)
		defer s.give()
		s.start(ctx, l, f, search, nil)
		if at, m.Runs, err = s.slowest(); err != nil {
			return m, err
		}
	}
	m.Match = measure(&l.levels.nearest, c, at, mask)
	m.End = f.Skip + int(m.Tokens)
	m.Run, m.Next = m.End, c.Skip+m.Chunks
	need := Need{From: c.Skip, To: m.Next}
	for p := range m.In {
		need.In[p] = m.In[p].Chunks
	}
	if m.Hot < m.Chunks {
		need.at = make([]uint8, m.Chunks)
		for i := range need.at {
			need.at[i] = uint8(tier.Of(l.levels.nearest[tier.Set(at[need.From+i])&mask&tier.All]))
		}
	}
	m.Needs = []Need{need}
	return m, nil
}

// slowest is the farthest place of each chunk of the first group that all ranks know, as a bit, 0 where
// one does not have it, and for each rank the first chunk that it does not have.
func (s *familySearch) slowest() (at []uint8, runs []int, err error) {
	chains := s.family.Chains[0]
	known := chains[0].Len()
	s.runs = make([]int, len(chains))
	for r := range chains {
		n, err := s.full(0, r)
		if err != nil {
			return nil, nil, err
		}
		known = min(known, n)
	}
	return s.at[0][:known], s.runs, nil
}

// Lengths are the lengths at which what Plan has found is usable, the longest
// first: End, and then no more than limit of them in all.
func (l *Lookups) Lengths(ctx context.Context, f *Family, search tier.Set, m *Plan, limit int) ([]int, error) {
	s := familySearches.Get().(*familySearch)
	defer s.give()
	s.start(ctx, l, f, search, nil)
	run, err := s.run(0) // which reads its marks
	if err != nil {
		return nil, err
	}
	return s.words.Lengths(nil, f.Groups, f.Skip, min(run, m.End), limit, s), nil
}

// familySearch is what one Plan needs.
type familySearch struct {
	ctx     context.Context
	lookups *Lookups
	family  *Family
	lost    map[Piece]struct{}
	mask    tier.Set                // the tiers that count
	near    [1 << tier.Places]uint8 // the nearest of some tiers that counts, as a bit; or 0
	words   index.Search
	at      [][]uint8 // by group: the farthest place of its chunks, as far as they were asked for
	rank    []uint8   // of one rank
	marks   [][]uint8 // by rank: of the chunks of the first group; see groupBits
	mark    [][]uint8 // by group and rank: its own of these; 0: all of its chunks are looked up
	ends    []uint8   // by rank: the marks without which no prefix ends at a chunk
	runs    []int     // by rank: the first chunk of the first group that it does not have; nil: not wanted
}

var familySearches = sync.Pool{New: func() any { return new(familySearch) }}

func (s *familySearch) start(ctx context.Context, l *Lookups, f *Family, search tier.Set, lost map[Piece]struct{}) {
	s.ctx, s.lookups, s.family, s.lost = ctx, l, f, lost
	s.mask = search &^ l.levels.off()
	for set := range s.near {
		s.near[set] = 0
		if p, ok := l.levels.nearestOf(tier.Set(set) & s.mask); ok {
			s.near[set] = uint8(tier.Of(p))
		}
	}
	for len(s.at) < len(f.Groups) {
		s.at = append(s.at, nil)
	}
	for g := range f.Groups {
		n := f.Chains[g][0].Len()
		s.at[g] = slices.Grow(s.at[g][:0], n)[:n]
		s.rank = slices.Grow(s.rank[:0], n)[:max(n, len(s.rank))]
		s.join(g)
	}
	s.findEnds()
}

// join finds the marks of a group, if it has the hashes of the first, which is full.
func (s *familySearch) join(g int) {
	f := s.family
	for len(s.mark) <= g {
		s.mark = append(s.mark, nil)
	}
	s.mark[g] = slices.Grow(s.mark[g][:0], len(f.Chains[g]))[:len(f.Chains[g])]
	for r := range f.Chains[g] {
		first, own := &f.Chains[0][r], &f.Chains[g][r]
		s.mark[g][r] = 0
		if g == 0 {
			for len(s.marks) <= r {
				s.marks = append(s.marks, nil)
			}
			s.marks[r] = slices.Grow(s.marks[r][:0], own.Len())[:own.Len()]
		} else if f.Groups[g].Kind != index.Full && !first.Alone && own.Len() > 0 && own.Len() == first.Len() && &own.Hashes[0] == &first.Hashes[0] {
			s.mark[g][r] = s.lookups.index.mark(first.Space, own.Space)
		}
	}
}

func (s *familySearch) give() {
	s.ctx, s.lookups, s.family, s.lost, s.runs = nil, nil, nil, nil, nil
	familySearches.Put(s)
}

// run is how many leading tokens of a group are there; of one that is not full, how
// many there can be. A shorter last chunk is no end.
func (s *familySearch) run(g int) (tokens int, err error) {
	chains, group := s.family.Chains[g], s.family.Groups[g]
	n := chains[0].Len()
	if n > 0 && int(chains[0].Tokens[n-1]) != group.Chunk {
		n--
	}
	if group.Kind != index.Full {
		return n * group.Chunk, nil
	}
	for r := range chains {
		known, err := s.full(g, r)
		if err != nil {
			return 0, err
		}
		n = min(n, known)
	}
	s.lose(g, 0, n)
	i := s.family.Skip / group.Chunk
	for i < n && s.at[g][i] != 0 {
		i++
	}
	return i * group.Chunk, nil
}

// full is where the chunks of a rank of a full group are, as far as they are known.
func (s *familySearch) full(g, r int) (known int, err error) {
	c := &s.family.Chains[g][r]
	sc := borrow(c.Len())
	defer sc.give()
	if g == 0 {
		sc.marks = s.marks[r]
	}
	if known, err = s.lookups.locateOrAsk(s.ctx, c, sc); err != nil {
		return known, err
	}
	s.merge(g, r, 0, sc.at[:known])
	if s.runs != nil {
		s.runs[r] = c.Skip
		for s.runs[r] < known && tier.Set(sc.at[s.runs[r]])&s.mask != 0 {
			s.runs[r]++
		}
	}
	return known, nil
}

// There implements index.Source.
func (s *familySearch) There(g, from, to int) (bits uint64) {
	for r := range s.family.Chains[g] {
		if mark := s.mark[g][r]; mark != 0 {
			s.marked(&s.family.Chains[g][r], s.marks[r], mark, from, to)
		} else {
			s.lookups.locate(&s.family.Chains[g][r], from, s.rank[:to])
		}
		s.merge(g, r, from, s.rank[from:to])
	}
	s.lose(g, from, to)
	for i, at := range s.at[g][from:to] {
		if at != 0 {
			bits |= 1 << i
		}
	}
	return bits
}

// marked locates those of chunks from..to that have a mark: no others are anywhere.
func (s *familySearch) marked(c *key.Chain, marks []uint8, mark uint8, from, to int) {
	clear(s.rank[from:to])
	for i := from; i < to; i++ {
		if marks[i]&mark == 0 {
			continue
		}
		first := i
		for i+1 < to && marks[i+1]&mark != 0 {
			i++
		}
		s.lookups.locate(c, first, s.rank[:i+1])
	}
}

// findEnds finds the groups that need the chunk of the first group's hash at each end.
func (s *familySearch) findEnds() {
	f := s.family
	s.ends = slices.Grow(s.ends[:0], len(f.Chains[0]))[:len(f.Chains[0])]
	clear(s.ends)
	for g, group := range f.Groups {
		for r, mark := range s.mark[g] {
			if group.Kind == index.Window || group.Kind == index.State {
				s.ends[r] |= mark
			}
		}
	}
}

// May implements index.Source.
func (s *familySearch) May(from, to int) uint64 {
	may := ^uint64(0)
	if s.family.Groups.Grid() != s.family.Groups[0].Chunk {
		return may
	}
	for r, ends := range s.ends {
		if ends != 0 {
			may &= withAll(s.marks[r][from:to], ends)
		}
	}
	return may
}

// withAll has a bit for each of 64 bytes at most that has all bits of a mask, and
// perhaps for a byte behind such a one.
func withAll(bytes []uint8, mask uint8) (out uint64) {
	const each, high, gather = 0x0101010101010101, 0x8080808080808080, 0x0102040810204080
	all := each * uint64(mask)
	var last [8]uint8
	for i := 0; i < len(bytes); i += 8 {
		eight := bytes[i:min(i+8, len(bytes))]
		if len(eight) < 8 {
			copy(last[:], eight)
			eight = last[:]
		}
		x := binary.LittleEndian.Uint64(eight)&all ^ all // 0 in each byte that has all
		zero := (x - each) & ^x & high
		out |= zero >> 7 * gather >> 56 << i
	}
	return out & (1<<len(bytes) - 1) // all of 64
}

// merge adds the places of the chunks of a rank, from one on, to those known of
// those before it.
func (s *familySearch) merge(g, r, from int, of []uint8) {
	at := s.at[g][from:][:len(of)]
	if r == 0 {
		for i, set := range of {
			at[i] = s.near[set&uint8(tier.All)]
		}
		return
	}
	for i, set := range of {
		bit := s.near[set&uint8(tier.All)]
		if p, ok := s.lookups.levels.nearestOf(tier.Set(bit)); !ok || at[i] != 0 && s.lookups.levels.behind(p, tier.Set(at[i])) {
			at[i] = bit
		}
	}
}

// lose takes out the lost pieces.
func (s *familySearch) lose(g, from, to int) {
	for p := range s.lost {
		if p.Group == g && from <= p.Chunk && p.Chunk < to {
			s.at[g][p.Chunk] = 0
		}
	}
}

// learn tells the tiers of the length that was found.
func (l *Lookups) learn(f *Family, m *Plan) {
	if m.End > f.Skip {
		l.declare(f, m.End)
	}
	for g, group := range f.Groups {
		for r := range f.Chains[g] {
			if group.Kind == index.Full && m.End < m.Run {
				l.revive(f.Chains[g][r].Key(m.Run/group.Chunk - 1))
			}
		}
	}
}

// needs is what each group needs for n tokens, which are usable.
func (s *familySearch) needs(n int) []Need {
	f := s.family
	out := make([]Need, len(f.Groups))
	if n <= f.Skip {
		return out
	}
	for g := range out {
		need := &out[g]
		need.From, need.To = f.Groups[g].Needs(f.Skip, n)
		need.at = slices.Clone(s.at[g][need.From:need.To])
		var count [1 << tier.Places]int
		for _, at := range need.at {
			count[at&uint8(tier.All)]++
		}
		for p := tier.CPU; p < tier.Places; p++ {
			need.In[p] = count[tier.Of(p)]
		}
	}
	return out
}
