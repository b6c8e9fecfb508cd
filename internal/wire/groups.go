package wire

import "encoding/binary"

// GroupKind says which chunks of a group of a hybrid model a prefix needs.
type GroupKind uint8

// The kinds.
const (
	GroupFull   GroupKind = 0 // all
	GroupWindow GroupKind = 1 // those with the last Tokens tokens
	GroupLocal  GroupKind = 2 // those behind the last multiple of Tokens
	GroupState  GroupKind = 3 // the last one
)

// Group is one group of a hybrid model.
type Group struct {
	Space  uint32 // handle
	Kind   GroupKind
	Tokens uint32 // of a window and a local group
}

const groupBytes = 16

// Groups is a list of Group as it lies in a body.
type Groups []byte

// Add appends one element.
func (l Groups) Add(g Group) Groups {
	l = binary.LittleEndian.AppendUint32(l, g.Space)
	l = append(l, byte(g.Kind), 0, 0, 0)
	return appendZero(binary.LittleEndian.AppendUint32(l, g.Tokens), 4)
}

// Len is the number of elements.
func (l Groups) Len() int { return len(l) / groupBytes }

// At returns element i.
func (l Groups) At(i int) Group {
	b := l[i*groupBytes:][:groupBytes]
	return Group{
		Space: binary.LittleEndian.Uint32(b), Kind: GroupKind(b[4]), Tokens: binary.LittleEndian.Uint32(b[8:]),
	}
}

func groupsIn(c *cursor) Groups {
	l := Groups(c.array(groupBytes, "groups"))
	c.atMost(l.Len(), MaxGroups, "groups")
	return l
}

// Need is the chunks of one group that a prefix needs, and where they are: each
// at the nearest tier, of several ranks at the farthest of these.
type Need struct {
	Space  uint32 // handle of the group
	First  uint32 // chunk of the group, from the start of the prompt
	Chunks uint32
	Tiers  [TierCount]uint32 // chunks in DRAM, on disk, and in the remote tier
}

const needBytes = 24

// Needs is a list of Need as it lies in a body.
type Needs []byte

// Add appends one element.
func (l Needs) Add(n Need) Needs {
	for _, v := range [...]uint32{n.Space, n.First, n.Chunks, n.Tiers[0], n.Tiers[1], n.Tiers[2]} {
		l = binary.LittleEndian.AppendUint32(l, v)
	}
	return l
}

// Len is the number of elements.
func (l Needs) Len() int { return len(l) / needBytes }

// At returns element i.
func (l Needs) At(i int) Need {
	v := U32s(l[i*needBytes:][:needBytes])
	return Need{Space: v.At(0), First: v.At(1), Chunks: v.At(2), Tiers: [TierCount]uint32{v.At(3), v.At(4), v.At(5)}}
}

// Grouped is the longest usable prefix of a hybrid model.
type Grouped struct {
	Tokens uint64 // usable, from the start of the prompt; those skipped if there is none
	// Run is how far the full groups reach. Where Tokens is less it is the junction: the
	// length whose windows and states are worth storing when it is computed.
	Run   uint64
	Lacks uint64 // a bit for each group, in the order of the request, that lacks something at Run
	Needs Needs  // of each group, at Tokens
	// Lengths are the usable ones in tokens, the longest first, as many as were asked for.
	Lengths U32s
}

// appendOption appends it as an option, and the lengths as the one that is replyLengths.
func (m *Grouped) appendOption(l *optionList, tag uint16) {
	if m == nil {
		return
	}
	at := l.begin(tag)
	for _, v := range [...]uint64{m.Tokens, m.Run, m.Lacks} {
		l.dst = binary.LittleEndian.AppendUint64(l.dst, v)
	}
	l.dst = appendArray(l.dst, needBytes, m.Needs)
	l.finish(at)
	l.list(replyLengths, 4, m.Lengths)
}

// lengthsIn reads the lengths of a reply, which follow their Grouped.
func lengthsIn(c *cursor, of *Grouped) {
	if l := c.numbers(4, "usable lengths"); of != nil {
		of.Lengths = l
	}
}

func groupedIn(c *cursor) *Grouped {
	m := &Grouped{Tokens: c.u64("usable tokens"), Run: c.u64("run"), Lacks: c.u64("lacking groups")}
	m.Needs = Needs(c.array(needBytes, "needs"))
	return m
}
