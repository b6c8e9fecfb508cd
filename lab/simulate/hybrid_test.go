package simulate

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/kvstored/kvstored/policy"
)

// TestPublishedGroups: the published trace has the hits for four models that another
// simulator found, and knowing dead chunks costs lru nothing.
func TestPublishedGroups(t *testing.T) {
	trace := conversation(t)
	capacities := []int{1000, 5859, 10000}
	for name, want := range map[string][]float64{ // of Dead
		"gpt-oss-120b":   {.0539, .2226, .2839},
		"gemma-3-27b":    {.0909, .3002, .3446},
		"qwen3-next-80b": {.1277, .3231, .3498},
		"nemotron-h-8b":  {.1784, .3458, 0},
	} {
		m, err := ModelNamed(name)
		if err != nil {
			t.Fatal(err)
		}
		rows, err := RunGroups(t.Context(), trace, GroupOptions{Model: &m, Policies: []string{"lru"}, Keeps: Keeps(), Capacities: capacities})
		if err != nil {
			t.Fatal(err)
		}
		for i, dense := range []float64{.0454, .1387, .2157} {
			dead, keys := rows[9+i], rows[3+i]
			if dead.OverallHitRate < want[i]-.005 || dead.OverallHitRate < keys.OverallHitRate-.002 {
				t.Errorf("%s at %d: %.4f, single keys %.4f; want %.4f", name, capacities[i], dead.OverallHitRate, keys.OverallHitRate, want[i])
			}
			if got := rows[i].OverallHitRate; got < dense-.0001 || got > dense+.0001 {
				t.Errorf("%s at %d, dense: %.4f; want %.4f", name, capacities[i], got, dense)
			}
		}
	}
}

// TestPublishedDeadFirst: under every policy a store that lets dead chunks go first
// hits no less than one of single keys, but for two in a thousand.
func TestPublishedDeadFirst(t *testing.T) {
	trace := conversation(t)
	for _, name := range []string{"gpt-oss-120b", "gemma-3-27b", "qwen3-next-80b", "nemotron-h-8b"} {
		m, err := ModelNamed(name)
		if err != nil {
			t.Fatal(err)
		}
		rows, err := RunGroups(t.Context(), trace, GroupOptions{Model: &m, Policies: policy.Names(), Keeps: []Keep{Keys, Dead}, Capacities: []int{1000, 5859, 10000}})
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i < len(rows); i += 6 {
			for c := range 3 {
				if keys, dead := rows[i+c], rows[i+3+c]; dead.OverallHitRate < keys.OverallHitRate-.002 {
					t.Errorf("%s, %s at %d: %.4f, single keys %.4f", name, dead.Policy, dead.CapacityBlocks, dead.OverallHitRate, keys.OverallHitRate)
				}
			}
		}
	}
}

var small = []Model{
	{Groups: []ModelGroup{{Kind: "full", BytesPerToken: 3}, {Kind: "window", BytesPerToken: 2, Window: 1100}}},
	{Groups: []ModelGroup{{Kind: "full", BytesPerToken: 1}, {Kind: "state", StateBytes: 2000, StateEvery: 512}}},
	{Groups: []ModelGroup{
		{Kind: "full", BytesPerToken: 1}, {Kind: "full", BytesPerToken: 2}, {Kind: "local", BytesPerToken: 2, Window: 1536},
		{Kind: "window", BytesPerToken: 1, Window: 64}, {Kind: "state", StateBytes: 700, StateEvery: 512},
	}},
}

// TestGroupsAreTheDefinition: after each request what is counted is what a search of all
// that is resident finds, and nothing is more than the room.
func TestGroupsAreTheDefinition(t *testing.T) {
	for seed := range *seeds {
		trace := randomTrace(t, seed)
		for _, name := range policy.Names() {
			for i := range small {
				for _, keep := range Keeps() {
					chance := rand.New(rand.NewPCG(seed, uint64(i)))
					r := GroupRow{Policy: name, Store: keep, CapacityBlocks: 3 + chance.IntN(30), DiskPolicy: "lru", DiskBlocks: int(seed%2) * chance.IntN(30)}
					f, err := r.family(trace, &small[i])
					if err != nil {
						t.Fatal(err)
					}
					for n, req := range trace.requests {
						blocks := trace.blocks[trace.start(n):req.end]
						want := f.naiveHit(blocks)
						if got := f.request(blocks); got != want {
							t.Fatalf("%s %s, model %d, request %d: %d blocks hit, want %d", name, keep, i, n, got, want)
						}
						f.check(t)
					}
				}
			}
		}
	}
}

// naiveHit is the longest prefix that is usable, by the definition of what groups need.
func (f *family) naiveHit(blocks []uint32) int {
	for n := len(blocks); n > 0; n-- {
		if f.naiveUsable(blocks[:n], false) {
			return n
		}
	}
	return 0
}

// naiveUsable is the definition; of a resume point that is live the last full piece is enough, as
// tiers lose prompts from their ends on.
func (f *family) naiveUsable(blocks []uint32, live bool) bool {
	n := len(blocks)
	if len(f.groups) > 1 && f.cut[blocks[n-1]] {
		return false
	}
	for g, group := range f.groups {
		from, to := group.Needs(0, n*f.trace.blockTokens)
		if live && g == 0 {
			from = n - 1
		}
		for i := from; i < to; i++ {
			if !f.has(f.piece(blocks[i], g)) {
				return false
			}
		}
	}
	return true
}

func (f *family) path(b uint32) (out []uint32) {
	if up := f.trace.parents[b]; up != 0 {
		out = f.path(up - 1)
	}
	return append(out, b)
}

func (f *family) check(t *testing.T) {
	t.Helper()
	for _, s := range f.shelves {
		used := int64(0)
		for p, in := range s.in {
			b, g := f.block(uint32(p)), f.group(uint32(p))
			if !in {
				continue
			}
			used += f.groups[g].Bytes
			if up := f.trace.parents[b]; len(f.shelves) == 1 && f.keep != Keys && g == 0 && up != 0 && !s.in[f.piece(up-1, 0)] {
				t.Fatalf("%s: block %d is resident without its parent", f.keep, b)
			}
		}
		if used != s.used || used > s.capacity {
			t.Fatalf("%s: %d bytes are resident, counted %d of %d", f.keep, used, s.used, s.capacity)
		}
	}
	if f.keep == Keys {
		return
	}
	count := make([]uint32, len(f.users))
	for b := range f.cut {
		path := f.path(uint32(b))
		if !f.naiveUsable(path, true) {
			continue
		}
		for g, group := range f.groups {
			from, to := group.Needs(0, len(path)*f.trace.blockTokens)
			for i := from; i < to; i++ {
				count[f.piece(path[i], g)]++
			}
		}
	}
	for p, n := range count {
		if n != f.alive.count[p] {
			t.Fatalf("%s: %d live resume points need piece %d, counted %d", f.keep, n, p, f.alive.count[p])
		}
	}
}

// TestGroupsByHand: a prefix without a state where it ends is of no use, the next prompt
// that meets its junction leaves one there, and what nobody can use goes first.
func TestGroupsByHand(t *testing.T) {
	m := Model{Groups: []ModelGroup{{Kind: "full", BytesPerToken: 1}, {Kind: "state", StateBytes: 512, StateEvery: 512}}}
	trace := parse(t, line("1, 2", "1024")+line("1, 3", "1024")+line("1, 4", "1024"))
	rows, err := RunGroups(t.Context(), trace, GroupOptions{Model: &m, Policies: []string{Infinite}, Keeps: Keeps(), Capacities: []int{1}})
	if err != nil {
		t.Fatal(err)
	}
	if dense := rows[0]; dense.TotalHitTokens != 1024 || dense.LoadedBytes != 2048 || dense.LostTokens != 0 {
		t.Errorf("dense: %+v", dense)
	}
	for _, r := range rows[1:] {
		if r.TotalHitTokens != 512 || r.LostTokens != 512 || r.LoadedBytes != 1024 || r.Groups[1].Chunks != 4 {
			t.Errorf("%+v", r)
		}
	}
}

func TestWrongGroupOptions(t *testing.T) {
	trace := parse(t, line("1, 2", "1024"))
	for want, o := range map[string]GroupOptions{
		`policy "tenure"`: {Policies: []string{"tenure"}},
		`policy "none"`:   {Policies: []string{"none"}},
		`store "all"`:     {Keeps: []Keep{"all"}},
		"0 blocks":        {Capacities: []int{0}},
	} {
		if _, err := RunGroups(t.Context(), trace, o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v", o, err)
		}
	}
	forest := parse(t, line("1, 2", "1024")+line("3, 2", "1024"))
	if _, err := RunGroups(t.Context(), forest, GroupOptions{Model: &small[0]}); err == nil {
		t.Error("ids that stand for no prefixes are simulated")
	}
}
