package kills

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/e2e/daemon"
	"github.com/kvstored/kvstored/e2e/load"
	"github.com/kvstored/kvstored/internal/index"
	"github.com/kvstored/kvstored/key"
)

var groupKills = flag.Int("group-kills", 4, "rounds of TestKilledBetweenGroups")

const pieceBytes = 20_000 // of a payload

// killedGroups is a prompt of 10 chunks in a group of each kind, usable at 5 and at 10.
type killedGroups struct {
	t      *testing.T
	family index.Family
	spaces []key.Space
	chains []*key.Chain
}

func newKilledGroups(t *testing.T, round int) *killedGroups {
	m := &killedGroups{t: t, family: index.Family{{}, {Kind: index.Window}, {Kind: index.Local}, {Kind: index.State}}}
	for g := range m.family {
		s := load.Space
		if g > 0 {
			s.Group = fmt.Sprint("kind ", g)
		}
		m.family[g].Chunk = s.ChunkTokens
		m.family[g].Tokens = []int{0, 2, 4, 0}[g] * s.ChunkTokens
		m.spaces, m.chains = append(m.spaces, s), append(m.chains, load.Chain(t, s, uint64(7000+round), 10))
	}
	return m
}

// part is what a prefix of so many chunks needs of a group, of the full one behind the shorter
// prefix.
type part struct{ group, end int }

func (m *killedGroups) chunks(p part) (from, to int) {
	if p.group == 0 {
		return p.end - 5, p.end
	}
	return m.family[p.group].Needs(0, p.end*load.Space.ChunkTokens)
}

func (m *killedGroups) dial(socket string) (*client.Client, []client.Group) {
	m.t.Helper()
	c, err := client.Dial(m.t.Context(), socket, client.Options{Space: &m.spaces[0]})
	if err != nil {
		m.t.Fatal(err)
	}
	var groups []client.Group
	for g, group := range m.family {
		handle, err := c.OpenSpace(m.t.Context(), m.spaces[g])
		if err != nil {
			m.t.Fatal(err)
		}
		groups = append(groups, client.Group{Space: handle, Kind: client.GroupKind(group.Kind), Tokens: group.Tokens})
	}
	return c, groups
}

func (m *killedGroups) store(socket string, p part) {
	m.t.Helper()
	c, groups := m.dial(socket)
	defer c.Close()
	prompt := client.Chain(m.chains[p.group])
	prompt.Space, prompt.Alone = groups[p.group].Space, p.group > 0
	from, to := m.chunks(p)
	f, err := c.Reserve(m.t.Context(), prompt, client.ReserveOptions{First: from, Count: to - from, Size: pieceBytes})
	if err != nil || f.Len() != to-from {
		m.t.Fatal(f, err)
	}
	for i := range f.Len() {
		load.Fill(f.Bytes(i), m.chains[p.group].Key(from+i))
	}
	if _, err := f.Commit(m.t.Context()); err != nil {
		m.t.Fatal(err)
	}
}

// usable is the longest usable prefix once these parts are stored.
func (m *killedGroups) usable(stored []part) int {
	has := map[part]bool{}
	for _, p := range stored {
		has[p] = true
	}
	for _, end := range []int{10, 5} {
		all := has[part{0, 5}]
		for g := range m.family {
			all = all && has[part{g, end}]
		}
		if all {
			return end
		}
	}
	return 0
}

// check returns the prefix that is found, of which all pieces have the right bytes.
func (m *killedGroups) check(socket string) int {
	m.t.Helper()
	c, groups := m.dial(socket)
	defer c.Close()
	ctx := m.t.Context()
	j, err := c.Prefetch(ctx, client.Chain(m.chains[0]), client.PrefetchOptions{Groups: groups, Policy: client.WaitComplete})
	if err != nil {
		m.t.Fatal(err)
	}
	st, err := j.Wait(ctx, client.All)
	if err != nil {
		m.t.Fatal(err)
	}
	n := int(st.Ready.Chunks)
	for g, need := range j.Needs() {
		if from, to := m.family[g].Needs(0, n*load.Space.ChunkTokens); need.First != from || need.Chunks != to-from {
			m.t.Errorf("group %d has %d chunks from %d; %d to %d are needed", g, need.Chunks, need.First, from, to)
		}
		for i := need.First; i < need.First+need.Chunks; i++ {
			p, err := j.Piece(g, 0, i)
			if err != nil || len(p) != pieceBytes || !load.Filled(p, m.chains[g].Key(i)) {
				m.t.Errorf("group %d, chunk %d is wrong: %v", g, i, err)
			}
		}
	}
	if err := j.Release(ctx); err != nil {
		m.t.Fatal(err)
	}
	return n
}

// TestKilledBetweenGroups: a daemon that is killed between the stores of a prompt's groups finds
// afterwards the longest prefix of which all groups had their needs on disk.
func TestKilledBetweenGroups(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(22, uint64(*groupKills)))
	d := daemon.Start(t)
	found := map[int]int{}
	for round := range *groupKills {
		m := newKilledGroups(t, round)
		parts := []part{{0, 5}, {0, 10}, {1, 5}, {1, 10}, {2, 5}, {2, 10}, {3, 5}, {3, 10}}
		rng.Shuffle(len(parts), func(i, j int) { parts[i], parts[j] = parts[j], parts[i] })
		flushed := 4 + rng.IntN(5)
		if round%2 == 1 { // the shorter prefix is there, and not all of the longer one
			slices.SortStableFunc(parts, func(a, b part) int { return a.end - b.end })
			flushed = 4 + rng.IntN(3)
		}
		for _, p := range parts[:flushed] {
			m.store(d.Socket, p)
		}
		d.Flush()
		sure, perhaps := m.usable(parts[:flushed]), m.usable(parts[:min(flushed+1, len(parts))])
		if flushed < len(parts) {
			m.store(d.Socket, parts[flushed])
		}
		d.Kill()
		d.Start()
		n := m.check(d.Socket)
		if n != sure && n != perhaps {
			t.Errorf("round %d: %d chunks are usable; want %d, or %d", round, n, sure, perhaps)
		}
		found[n]++
	}
	if found[5] < *groupKills/2 {
		t.Error("the shorter prefix was not found in each second round")
	}
	t.Logf("usable after %d kills: %v", *groupKills, found)
}
